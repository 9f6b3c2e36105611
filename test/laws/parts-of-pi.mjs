import { registerHooks } from "node:module";

/**
 * For `node --import`: of Pi, only what the fake Pi is made of. A process starts three times as fast without the rest,
 * and the kill suite starts a hundred.
 */
registerHooks({
	resolve(specifier, context, next) {
		return next(
			specifier === "@earendil-works/pi-coding-agent" ? `${import.meta.dirname}/pi-core.mjs` : specifier,
			context,
		);
	},
});
