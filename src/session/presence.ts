import type { OwnRecord, Running, SessionFields } from "../mail/running.ts";

/** Keeps this session's running record true, and says whether this process is the one that receives its mail (design D7). */
export interface Presence {
	/** Takes the address when nobody has it. False while another process runs the same session. */
	isOwner(): boolean;
	/** Changes what the record says, where that is not what it says already. While another process has the address, only remembers it. */
	update(fields: Partial<SessionFields>): void;
	/** Takes the record away; `keep` leaves it for the same process, after a `/reload`. */
	end(keep: boolean): void;
}

export function createPresence(
	running: Running,
	address: string,
	fields: SessionFields,
	warn: (text: string) => void,
): Presence {
	const standby = running.standby(address);
	let record: OwnRecord | undefined;
	let current = fields;
	let isWritten = true;

	function take(): boolean {
		let owned = running.own(address, current);
		// The other process may end at any moment, and nobody must find the session closed until this one has its record.
		if (!owned.ok && owned.code === "held" && standby.leave(current)) owned = running.own(address, current);
		if (owned.ok) {
			record = owned.record;
			standby.remove();
			return true;
		}
		if (owned.code === "held") {
			const { pid } = owned.holder;
			// Its end cannot be seen from here: only a person can tell.
			const until =
				running.find(address)?.judgement === "unknown"
					? `; it runs in another container. If it has ended, remove running/${address}.json in the mail root`
					: " until that one ends";
			warn(`process ${pid} has this session open as well and receives its mail; this one can only send${until}`);
			return false;
		}
		// Without a record the others do not see this session, but its mailbox works.
		warn(unwritten(owned.message));
		return true;
	}

	function write(): void {
		const written = record?.update(current);
		// What another process holds is written whole when it is taken again.
		isWritten = written?.ok !== false || written.code === "held";
		if (written?.ok === false && !isWritten) warn(unwritten(written.message));
	}

	return {
		isOwner() {
			if (record?.isMissing()) write();
			return record?.isOwner() === true || take();
		},
		update(changed) {
			const before = JSON.stringify(current);
			current = { ...current, ...changed };
			if (!isWritten || JSON.stringify(current) !== before) write();
		},
		end(keep) {
			if (!keep) record?.release();
			standby.remove();
			record = undefined;
		},
	};
}

function unwritten(reason: string): string {
	return `could not write this session's running record: ${reason}. Others do not see it as it is; its mail still comes.`;
}
