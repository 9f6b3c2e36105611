import { createHash } from "node:crypto";

/** The longest address in characters (design D22). */
const maxAddressLength = 128;

const addressPattern = /^[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?$/;
const uuidPattern = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

const passingPattern = /^(?:ask|send)-[a-z0-9]{16}$/;

/** Folders of the mail root that are no mailbox. Compared without case: some file systems have none. */
const reservedNames = new Set(["running"]);

/** The shortest id prefix that people may type, and the shortest that is shown (PSM-031, design D6). */
export const shortIdLength = 8;

/** As much of a closed session's id as tells it from others that began in another millisecond. */
const closedIdLength = 13;

/** Whether a session id can be an address. Everything Pi accepts as a session id is, up to 128 characters, except reserved names. */
export function isAddress(id: string): boolean {
	return id.length <= maxAddressLength && addressPattern.test(id) && !isReservedAddress(id);
}

/** Whether a session id is the name of one of the root's own folders: a session of that id has no mailbox. */
export function isReservedAddress(id: string): boolean {
	return reservedNames.has(id.toLowerCase());
}

/**
 * The address of a program that has no name of its own: it lives as long as the program's folder, which goes when the
 * program ends. Mail to one that has no folder is refused, so that no answer waits for nobody.
 */
export function isPassingAddress(address: string): boolean {
	return passingPattern.test(address);
}

/** Whether a text is a whole session id as Pi makes them. */
export function isUuid(text: string): boolean {
	return uuidPattern.test(text);
}

/** The same UUID for the same text, for mail that must be sent once however often it is tried. */
export function uuidOf(text: string): string {
	const hash = createHash("sha256").update(text).digest("hex");
	return hash.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12}).*$/, "$1-$2-$3-$4-$5");
}

/** The one spelling of an address: a UUID in lower case, anything else as it is. Apply it before a path is built or two are compared. */
export function canonicalAddress(id: string): string {
	return isUuid(id) ? id.toLowerCase() : id;
}

/** Whether a name is an address in its one spelling, as folders and records of the mail root are named. */
export function isCanonicalAddress(name: string): boolean {
	return isAddress(name) && canonicalAddress(name) === name;
}

/** What is shown of the address of a session that does not run: the start of an id, or a name that somebody chose. */
export function closedAddress(address: string): string {
	return isUuid(address) ? address.slice(0, closedIdLength) : address;
}

/** The shortest prefix of `address`, of at least 8 characters, that no other of `addresses` starts with. */
export function shortAddress(address: string, addresses: Iterable<string>): string {
	let length = shortIdLength;
	for (const other of addresses) {
		if (other === address) continue;
		while (length < address.length && other.startsWith(address.slice(0, length))) length++;
	}
	return address.slice(0, length);
}
