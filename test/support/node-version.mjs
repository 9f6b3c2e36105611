// Plain JavaScript, so that it can speak up on a Node that is too old for everything else.

/** The oldest Node that the test tools run on. Pi itself needs 22.19. */
const oldest = [22, 22];

/** Stops the tests on a Node that is too old, which is what `npm ci --ignore-scripts` leaves on many machines. */
export default function assertNodeVersion() {
	const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
	if (major > oldest[0] || (major === oldest[0] && minor >= oldest[1])) return;
	console.error(
		`This needs Node ${oldest.join(".")} or later and runs on ${process.version}. "npm ci" brings Node 24 along, unless its install scripts are switched off.`,
	);
	process.exit(1);
}

if (process.argv[1] === import.meta.filename) assertNodeVersion();
