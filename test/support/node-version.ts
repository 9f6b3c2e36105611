/** The oldest Node that the test tools run on. Pi itself needs 22.19. */
const oldest = [22, 22] as const;

/** Stops the test run on a Node that is too old, which is what `npm ci --ignore-scripts` leaves on many machines. */
export default function assertNodeVersion(): void {
	const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
	if (major > oldest[0] || (major === oldest[0] && minor >= oldest[1])) return;
	throw new Error(
		`The tests need Node ${oldest.join(".")} or later and run on ${process.version}. "npm ci" brings Node 24 along, unless its install scripts are switched off.`,
	);
}
