declare const PACKAGE_VERSION: string | undefined;

/** The version of the package. Put in by the bundler. */
export const version = typeof PACKAGE_VERSION === "string" ? PACKAGE_VERSION : "0.0.0 (source)";
