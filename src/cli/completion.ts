import { type Call, UsageError } from "./call.ts";
import { type Command, commands, commonOptions } from "./commands.ts";

/** `completion`: a script for a shell. */
export async function completion({ words, out }: Call): Promise<number> {
	const [shell, ...rest] = words;
	if (rest.length > 0 || (shell !== "bash" && shell !== "zsh")) {
		throw new UsageError("completion takes the name of a shell: bash or zsh");
	}
	await out.print(shell === "bash" ? bash() : `autoload -U +X bashcompinit && bashcompinit\n${bash()}`);
	return 0;
}

function bash(): string {
	const all = Object.entries<Command>(commands);
	const options = all.map(([name, command]) => {
		const names = Object.keys({ ...command.options, ...commonOptions }).map((option) => `--${option}`);
		return `\t\t${name}) words="${names.join(" ")}" ;;`;
	});
	const recipients = all.flatMap(([name, { takesRecipient }]) => (takesRecipient ? name : []));
	return [
		"_pi_session_mail() {",
		// biome-ignore lint/suspicious/noTemplateCurlyInString: the shell's
		'\tlocal current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words="" IFS',
		"\tCOMPREPLY=()",
		'\tif [ "$COMP_CWORD" -eq 1 ]; then',
		`\t\tCOMPREPLY=($(compgen -W "${all.map(([name]) => name).join(" ")} --help --version" -- "$current"))`,
		"\t\treturn",
		"\tfi",
		'\tcase "$command" in',
		...options,
		"\tesac",
		'\tcase "$current" in',
		'\t\t-*) COMPREPLY=($(compgen -W "$words" -- "$current")) ; return ;;',
		"\tesac",
		`\tcase "$COMP_CWORD $command" in`,
		`\t\t${recipients.map((name) => `"2 ${name}"`).join("|")})`,
		// A name may hold anything: it is never taken for a pattern or a command.
		"\t\t\tlocal name",
		"\t\t\twhile IFS= read -r name; do",
		'\t\t\t\tcase "$name" in "$current"*) COMPREPLY+=("$(printf %q "$name")") ;; esac',
		"\t\t\tdone < <(pi-session-mail list --names 2>/dev/null) ;;",
		'\t\t"2 completion") COMPREPLY=($(compgen -W "bash zsh" -- "$current")) ;;',
		"\tesac",
		"}",
		"complete -F _pi_session_mail pi-session-mail",
	].join("\n");
}
