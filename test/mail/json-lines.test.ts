import { expect, test } from "vitest";
import { jsonLines } from "../../src/mail/json-lines.ts";

test.each([
	["a key without quotes", '{\n\t"a": 1,\n\tb: 2\n}', 3],
	["a comma too many", '{\n\t"a": 1,\n}', 3],
	["a comma too few", '{\n\t"a": 1\n\t"b": 2\n}', 3],
	["a word that is none", '{\n\t"a": tru\n}', 2],
	["a number that is none", '{\n\t"a": 01\n}', 2],
	["a value that is missing", '{\n\t"a":\n}', 3],
	["a comment", '{\n\t// mine\n\t"a": 1\n}', 2],
	["single quotes", "{\n\n\t'a': 1\n}", 3],
	["a text over two lines", '{\n\t"a": "one\ntwo"\n}', 2],
	["an end that is missing", '{\n\t"a": [1,\n\t2\n', 4],
	["the wrong bracket", '{\n\t"a": [1\n\t}\n}', 3],
	["something behind it", "{}\n\n}", 3],
	["nothing", "", 1],
	["one that is nested without end", "[".repeat(60_000), 1],
])("a slip is found in its line: %s", (_, text, line) => {
	expect(() => JSON.parse(text)).toThrow();
	expect(jsonLines(text).slip).toBe(line);
});

test.each(['{"a": [1, -2.5e3, "\\u00e4\\"\u007fä", true, null, {}], "": {"b": []}}', " [ ] \n", '"a"', "0"])(
	"there is none in %s",
	(text) => {
		JSON.parse(text);
		expect(jsonLines(text).slip).toBeUndefined();
	},
);

test("a value is found in its line, and for one that is not there what should hold it", () => {
	const { lineOf } = jsonLines('{\n\t"a": [\n\t\t1,\n\t\t{ "b":\n\t\t2 }\n\t]\n}');
	const paths = [[], ["a"], ["a", 0], ["a", 1], ["a", 1, "b"], ["a", 1, "c"], ["x", "y"]];
	expect(paths.map(lineOf)).toEqual([1, 2, 3, 4, 5, 4, 1]);
});
