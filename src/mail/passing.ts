import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { removeTree } from "./boxes.ts";
import type { Disk } from "./disk.ts";

/**
 * Removes the folder of a program that has ended and had a passing address. It is moved aside first: whoever delivers at
 * this moment finds none, and hears that the program has ended. Throws the disk's errors; pruning removes what is left.
 */
export function removePassing(disk: Disk, root: string, address: string): void {
	const folder = join(root, address);
	if (disk.entry(folder) !== "folder") return;
	const aside = join(root, `.pruning.${address}.${randomUUID()}`);
	disk.rename(folder, aside);
	for (const _ of removeTree(disk, aside));
}
