import { mkdtempSync, rmSync, statfsSync } from "node:fs";
import { availableParallelism, cpus, loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { repository } from "../support/pi.ts";

/** What a benchmark ran on. */
export interface Machine {
	readonly node: string;
	readonly cpu: string;
	readonly cores: number;
	/** Runnable processes over the last minute, at the start. Above the number of cores the figures are noise. */
	readonly load: number;
	/** Where all files of the benchmark lie. */
	readonly folder: string;
	/** Type of the file system there. In memory nothing is durable, so figures for durable mail mean nothing on it. */
	readonly fileSystem: string;
}

/** This machine, with files in `folder`. */
export function machineWith(folder: string): Machine {
	return {
		node: process.version,
		cpu: cpus()[0]?.model ?? "unknown",
		cores: availableParallelism(),
		load: loadavg()[0] ?? 0,
		folder,
		fileSystem: fileSystemOf(folder),
	};
}

/** A new folder for everything that is measured, gone when this process ends: where temporary files lie, or beside the repository when they lie in memory. */
export function makeFolder(): string {
	const place = fileSystemOf(tmpdir()) === "tmpfs" ? join(repository, "..") : tmpdir();
	const folder = mkdtempSync(join(place, "session-mail-bench-"));
	process.once("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 }));
	for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => process.exit(1));
	return folder;
}

/** Type of the file system that a path lies on: a name, or the number statfs(2) gives for one that is not listed. */
function fileSystemOf(path: string): string {
	const { type } = statfsSync(path);
	return fileSystems.get(type) ?? `0x${type.toString(16)}`;
}

const fileSystems = new Map([
	[0x01021994, "tmpfs"],
	[0x1a, "apfs"],
	[0x2fc12fc1, "zfs"],
	[0x58465342, "xfs"],
	[0x6969, "nfs"],
	[0x794c7630, "overlayfs"],
	[0x9123683e, "btrfs"],
	[0xef53, "ext4"],
	[0xf2f52010, "f2fs"],
]);
