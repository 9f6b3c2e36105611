const ending = ".hold";

/**
 * The name of the hold of a mail: an empty file beside it in `new/`. As long as both are there, its session leaves the mail
 * where it is; its sender can still take it back. Alone it means nothing. A copy of the package that does not know it passes
 * it over, as any name that does not end in `.json` (PSM-018), and claims the mail.
 */
export function holdOf(mail: string): string {
	return mail + ending;
}

/** The name of the mail that a file in `new/` holds; undefined for all other names. */
export function mailOfHold(name: string): string | undefined {
	return name.endsWith(`.json${ending}`) ? name.slice(0, -ending.length) : undefined;
}
