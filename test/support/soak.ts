/** Whether the long form of the suites in `test/laws` runs (`npm run soak`): sizes by the hour instead of by the minute. */
export const isSoak = process.env.SOAK === "1";
