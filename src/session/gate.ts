/**
 * When an idle session may be woken (design 4.4). A run that mail starts between a person's prompt and the start of its
 * run makes Pi refuse the prompt, so the gate is shut while a prompt may be on its way.
 */
export interface Gate {
	readonly isOpen: boolean;
	/** The session's resources are loaded: a prompt given on the command line follows at once or not at all. */
	resourcesLoaded(): void;
	/** A prompt was entered while the session was idle. */
	prompted(): void;
	/** A run settled: no prompt is on its way. While one goes on nobody asks whether the gate is open. */
	settled(): void;
	close(): void;
}

/** How long after its resources are loaded a session waits for a prompt from the command line. */
const firstPromptMs = 1000;
/** How long a prompt may take to become a run, since an `input` handler of another extension may wait or take it over. */
const promptMs = 5000;

/** A gate that is shut, as at every `session_start`. `onOpen` is called when time opens it, not when an event does. */
export function createGate(onOpen: () => void): Gate {
	let isOpen = false;
	/** Of prompts that came before the resources were loaded: what follows them is not cut short. */
	let wasPrompted = false;
	let timer: NodeJS.Timeout | undefined;

	function openAfter(ms: number): void {
		clearTimeout(timer);
		timer = setTimeout(() => {
			isOpen = true;
			onOpen();
		}, ms).unref();
	}

	// Should Pi never say that the resources are loaded.
	openAfter(promptMs);
	return {
		get isOpen() {
			return isOpen;
		},
		resourcesLoaded() {
			if (!wasPrompted) openAfter(firstPromptMs);
		},
		prompted() {
			isOpen = false;
			wasPrompted = true;
			openAfter(promptMs);
		},
		settled() {
			clearTimeout(timer);
			isOpen = true;
		},
		close: () => clearTimeout(timer),
	};
}
