#!/usr/bin/env python3
"""sluice explain and sluice inspect on rows of .npy files. Usage: rows_test.py SLUICE ROOT."""

import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import terminal

SLUICE = ""
LOGITS = ""  # the committed file: two rows of 48 fp32
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
PROFILES = ("vllm", "hf", "sglang", "llamacpp", "tensorrt-llm")


def run(*args, stdin=None, **variables):
    return subprocess.run([SLUICE, *args], env={**ENVIRONMENT, **variables}, timeout=120,
                          input=stdin, stdin=subprocess.DEVNULL if stdin is None else None,
                          capture_output=True, encoding="utf-8")


def as_json(*args, **kwargs):
    result = run(*args, "--json", **kwargs)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    return json.loads(result.stdout)


def npy(values, descr="<f4", form="f", shape=None):
    shape = shape or (len(values),)
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header +
            struct.pack(f"<{len(values)}{form}", *values))


def fixture_row(row=0):
    with open(LOGITS, "rb") as file:
        data = file.read()
    return list(struct.unpack("<48f", data[128 + 192 * row:128 + 192 * (row + 1)]))


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "x.npy")

    def write(self, data):
        with open(self.path, "wb") as file:
            file.write(data)
        return self.path


class Explain(Files):
    def test_places_have_all_their_digits(self):
        path = self.write(npy([-i / 64 for i in range(262144)]))
        for token, flags, place, most in ((46197, ("--top-k", "50"), 46198, 50),
                                          (262143, ("--top-k", "200000"), 262144, 200000),
                                          (262143, ("--temperature", "0"), 262144, 1)):
            told = as_json("explain", path, "--id", str(token), *flags)
            self.assertIn(f"number {place}", told["sentence"])
            stage = next(s for s in told["stages"] if s["name"] in ("top-k", "greedy") and s["on"])
            self.assertEqual((stage["quantity"], stage["limit"]), (place, most))
            raw = run("explain", path, "--id", str(token), *flags, "--json").stdout
            self.assertRegex(raw, rf'"quantity": ?{place}\b')
            text = run("explain", path, "--id", str(token), *flags).stdout
            self.assertRegex(text, rf"place in the row +{place} +<= +{most}  dropped")

    def test_every_token_has_the_fate_that_inspect_lists(self):
        for flags in ((), ("--top-k", "9", "--top-p", "0.8"), ("--min-p", "0.3"),
                      ("--typical-p", "0.5"), ("--top-n-sigma", "1"), ("--temperature", "0"),
                      ("--xtc-probability", "1", "--min-p", "0.1")):
            for profile in PROFILES:
                args = (LOGITS, *flags, "--profile", profile)
                listed = as_json("inspect", *args, "--show-candidates", "48")
                kept = [c["id"] for c in listed["candidates"] if c["kept"]]
                self.assertEqual(len(kept), listed["cut"]["count"])
                drawn = [c["id"] for c in listed["candidates"] if c["drawn"]]
                self.assertEqual(drawn, [listed["token"]])
                for candidate in listed["candidates"][::9]:
                    told = as_json("explain", *args, "--id", str(candidate["id"]))
                    self.assertEqual(told["kept"], candidate["kept"])
                    self.assertEqual(told["token"], listed["token"])
                    if told["dropped_by"]:
                        self.assertTrue(candidate["fate"].endswith(told["dropped_by"]))
                        stage = [s for s in told["stages"] if s["name"] == told["dropped_by"]]
                        self.assertTrue(stage[0]["on"] and not stage[0]["left"])
                        self.assertIn(told["dropped_by"], told["sentence"])

    def test_the_sentence_has_the_numbers(self):
        text = run("explain", LOGITS, "--id", "8", "--top-k", "8", "--top-p", "0.9").stdout
        self.assertIn("top-p dropped it: 0.947 of the mass lies before it, 0.9 is kept", text)

    def test_history_penalties_masks_and_forced_tokens_count(self):
        def stage(name, *flags):
            told = as_json("explain", LOGITS, "--id", "11", *flags)
            return {s["name"]: s for s in told["stages"]}[name], told
        row = fixture_row()
        penalised, _ = stage("repetition penalty", "--repetition-penalty", "2", "--prompt-ids",
                             "3,11")
        self.assertEqual((penalised["before"], penalised["after"]), (row[11], row[11] / 2))
        self.assertEqual(stage("frequency penalty", "--frequency-penalty", "1", "--prompt-ids",
                               "11", "--output-ids", "11,11")[0]["after"], row[11] - 2)
        for flags, name in ((("--bad-words", "4:11", "--output-ids", "4"), "bad words"),
                            (("--allowed-token-ids", "1,2"), "allowed ids"),
                            (("--stop-token-ids", "11", "--min-tokens", "1"), "min-tokens"),
                            (("--forced", "3"), "forced token")):
            self.assertEqual(stage(name, *flags)[1]["dropped_by"], name)
        self.assertEqual(stage("logit bias", "--logit-bias", "11:-2.5,3:1")[0]["after"],
                         row[11] - 2.5)
        self.assertTrue(stage("forced token", "--forced", "11")[1]["drawn"])

    def test_seed_position_and_choice_are_the_key_of_the_noise(self):
        def token(*flags):
            return as_json("explain", LOGITS, "--id", "0", *flags)["token"]
        base = [token("--seed", str(s)) for s in range(8)]
        self.assertEqual(base, [token("--seed", str(s), "--position", "0") for s in range(8)])
        for flags in (("--position", "1"), ("--choice", "1"), ("--prompt-ids", "5")):
            self.assertNotEqual(base, [token("--seed", str(s), *flags) for s in range(8)])
        self.assertEqual(token("--prompt-ids", "5", "--position", "0"), base[0])

    def test_an_id_outside_the_row_is_refused(self):
        for value in ("48", "-1", "x", ""):
            result = run("explain", LOGITS, "--id", value)
            self.assertEqual((result.returncode, result.stdout), (2, ""), value)
            self.assertIn("id", result.stderr)
        self.assertEqual(run("explain", LOGITS).returncode, 2)
        self.assertEqual(run("explain", "--id", "1").returncode, 2)


class Inspect(Files):
    def test_statistics_are_those_of_the_row(self):
        row = fixture_row(1)
        told = as_json("inspect", LOGITS, "--row", "1")
        s = told["statistics"]
        self.assertEqual((told["shape"], told["dtype"], told["row"]), ([2, 48], "float32", 1))
        self.assertEqual((s["max"], s["max_id"], s["min"]), (max(row), row.index(max(row)),
                                                              min(row)))
        self.assertEqual((s["finite"], s["distinct"]), (48, len(set(row))))
        mass = sum(math.exp(x - max(row)) for x in row)
        entropy = -sum(p * math.log2(p) for p in (math.exp(x - max(row)) / mass for x in row))
        self.assertAlmostEqual(s["entropy_bits"], entropy, places=9)
        probabilities = [c["probability"] for c in told["candidates"]]
        self.assertEqual(len(probabilities), 20)
        self.assertAlmostEqual(probabilities[0], 1 / mass, places=5)

    def test_values_that_are_not_finite_are_counted_and_are_a_status(self):
        inf, nan = math.inf, math.nan
        for values, status, counts in (
                ([1, nan, -inf, 2], "nan_input", (1, 0, 1)),
                ([inf, 1, inf], "pos_inf_input", (0, 2, 0)),
                ([-inf, -inf], "empty_support", (0, 0, 2)),
                ([-inf, 0], "ok", (0, 0, 1))):
            told = as_json("inspect", self.write(npy(values)))
            s = told["statistics"]
            self.assertEqual((told["status"], s["nan"], s["pos_inf"], s["neg_inf"]),
                             (status, *counts))
            result = run("inspect", self.path)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual("status is " + status in result.stdout, status != "ok")
            for ident in range(len(values)):
                told = run("explain", self.path, "--id", str(ident))
                self.assertEqual((told.returncode, told.stderr), (0, ""))

    def test_every_type_gives_the_same_row(self):
        values = [0.5, -1.25, 3.0, 2.0, 3.0]
        bf16 = [struct.unpack("<I", struct.pack("<f", v))[0] >> 16 for v in values]
        told = [as_json("inspect", self.write(data), "--top-k", "3") for data in (
            npy(values), npy(values, "<f2", "e"), npy(bf16, "<V2", "H"))]
        self.assertEqual([t["dtype"] for t in told], ["float32", "float16", "bfloat16"])
        for other in told[1:]:
            self.assertEqual(other["candidates"], told[0]["candidates"])
            self.assertEqual(other["token"], told[0]["token"])

    def test_every_backend_and_algorithm_gives_the_same(self):
        listed = json.loads(run("inspect", "backends", "--json").stdout)["backends"]
        base = as_json("inspect", LOGITS, "--top-p", "0.9", "--backend", "ref")
        for backend in [b["name"] for b in listed if b["available"] and b["name"] != "ref"]:
            for algorithm in ("auto", "sort", "radix", "pivot"):
                told = as_json("inspect", LOGITS, "--top-p", "0.9", "--backend", backend,
                               "--algorithm", algorithm)
                self.assertEqual(told["backend"], backend)
                if algorithm != "auto":
                    self.assertEqual(told["algorithm"], algorithm)
                self.assertEqual(told["candidates"], base["candidates"])
        for flag, value in (("--backend", "tpu"), ("--algorithm", "bogo")):
            result = run("inspect", LOGITS, flag, value)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(value, result.stderr)

    def test_logprobs_are_listed_in_the_mode_that_was_asked_for(self):
        told = as_json("inspect", LOGITS, "--logprobs", "3", "--logprob-mode", "raw_logits")
        values = {t["id"]: t["value"] for t in told["logprobs"]["tokens"]}
        row = fixture_row()
        self.assertEqual(values, {i: row[i] for i in values})
        self.assertEqual(told["logprobs"]["tokens"][0]["id"], told["token"])
        self.assertEqual(len(told["logprobs"]["tokens"]), 4)
        self.assertNotIn("logprobs", as_json("inspect", LOGITS))
        self.assertIn("raw_logits", run("inspect", LOGITS, "--logprobs", "3", "--logprob-mode",
                                        "raw_logits").stdout)

    def test_wrong_files_rows_and_values_are_usage_errors(self):
        good = npy([1, 2, 3])
        for data, said in ((npy([1, 2, 3], "<f8", "d"), "x.astype"), (good[:-1], "11 bytes"),
                           (good[:50], "header"), (b"", "0 bytes"), (b"text " * 9, "numpy.save"),
                           (npy([], shape=(0,)), "(0,)"), (npy([1], shape=(0, 5)), "(0, 5)"),
                           (npy([1] * 8, shape=(2, 2, 2)), "(2, 2, 2)")):
            for command in (("inspect",), ("explain", "--id", "0")):
                result = run(*command, self.write(data))
                self.assertEqual((result.returncode, result.stdout), (2, ""), said)
                self.assertIn(said, result.stderr)
                self.assertIn("is not allowed", result.stderr)
        for path, said in (("/no/such/file", "no such file"), ("/", "a folder: /")):
            result = run("inspect", path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(said, result.stderr)
        for flag, value in (("--row", "2"), ("--row", "-1"), ("--show-candidates", "-1"),
                            ("--position", "4294967296"), ("--choice", "16777216"),
                            ("--prompt-ids", "48"), ("--output-ids", "1,,2"), ("--forced", "48"),
                            ("--logit-bias", "3"), ("--bad-words", "1:"), ("--bad-words", "1,,2"),
                            ("--allowed-token-ids", ""), ("--stop-token-ids", "a"),
                            ("--logprobs", "49"), ("--draw-method", "x")):
            result = run("inspect", LOGITS, flag, value)
            self.assertEqual((result.returncode, result.stdout), (2, ""), (flag, value))
            self.assertIn("is not allowed", result.stderr)

    def test_colours_and_bars_on_a_terminal_only(self):
        self.assertTrue(run("inspect", LOGITS, LC_ALL="C.UTF-8", TERM="xterm").stdout.isascii())
        for command in (("inspect",), ("explain", "--id", "3", "--top-p", "0.5")):
            environment = {**ENVIRONMENT, "LC_ALL": "C.UTF-8", "TERM": "xterm", "NO_COLOR": ""}
            code, output = terminal.run_on_terminal([SLUICE, *command, LOGITS], environment)
            self.assertEqual(code, 0)
            self.assertIn("\x1b[", output)
            self.assertIn("█", output)


def reads_json():
    result = run("inspect", LOGITS, "--params", "-", stdin="{}")
    return "a build with simdjson" not in result.stderr


class ParamsFile(Files):
    def setUp(self):
        super().setUp()
        if not reads_json():
            self.skipTest("this build reads no parameters as JSON")

    def test_a_file_gives_what_flags_and_variables_do_not(self):
        path = self.write(b'{"top_k": 3, "top_p": 0.5, "logit_bias": {"4": 1}, "seed": 9}')
        told = as_json("inspect", LOGITS, "--params", path, "--top-p", "0.75", SLUICE_SEED="8")
        parameters = told["parameters"]
        self.assertEqual((parameters["top_k"], parameters["top_p"], parameters["seed"]),
                         (3, 0.75, 8))
        self.assertEqual(parameters["logit_bias"], {"4": 1})

    def test_what_json_prints_reads_back(self):
        flags = ("--top-k", "7", "--logit-bias", "1:2.5,2:-100", "--bad-words", "1:2,3",
                 "--stop-token-ids", "4,5", "--profile", "hf", "--seed", "18446744073709551615",
                 "--draw-method", "cdf", "--draft-mode", "reject", "--logprobs", "2")
        first = as_json("inspect", LOGITS, *flags)
        self.write(json.dumps(first["parameters"]).encode())
        self.assertEqual(as_json("inspect", LOGITS, "--params", self.path), first)

    def test_standard_input_is_a_dash(self):
        for command in (("demo",), ("inspect", LOGITS), ("explain", LOGITS, "--id", "1")):
            told = as_json(*command, "--params", "-", stdin='{"top_k": 2}')
            self.assertEqual(told["parameters"]["top_k"], 2)

    def test_unknown_fields_are_named_and_left_alone(self):
        path = self.write(b'{"model": "m", "top_k": 2, "stream": true}')
        result = run("inspect", LOGITS, "--params", path)
        self.assertEqual(result.returncode, 0)
        self.assertIn("model stream", result.stderr)

    def test_errors_name_the_field(self):
        for text, said in ((b'{"top_p": 2}', "top_p = 2 is not allowed"), (b"{", "malformed"),
                           (b"[]", "x.npy: no object; expected one JSON object"), (b"", "malformed"),
                           (b'{"top_k": "x"}', "top_k"), (b'{"temperature": 3}', "temperature = 3")):
            result = run("inspect", LOGITS, "--params", self.write(text))
            self.assertEqual((result.returncode, result.stdout), (2, ""), text)
            self.assertIn(said, result.stderr)
        for path, said in (("/no/such/file", "no such file: /no/such/file"), ("/", "not a file but a folder: /")):
            result = run("demo", "--params", path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(said, result.stderr)


class Demo(unittest.TestCase):
    def test_every_flag_is_honoured(self):
        told = as_json("demo", "--logit-bias", "8580:3", "--allowed-token-ids",
                       "8580,7205,17022,23880", "--stop-token-ids", "7205", "--min-tokens", "20",
                       "--draw-method", "cdf", "--logprobs", "2", "--algorithm", "radix",
                       "--backend", "cpu" if has_vectors() else "ref")
        stages = {s["name"] for s in told["adjustments"]}
        self.assertTrue({"logit bias", "allowed ids", "min-tokens"} <= stages)
        self.assertEqual(len(told["logprobs"]["tokens"]), 3)
        self.assertTrue(all(p["same"] for p in told["proofs"]))
        self.assertIn("the algorithm that was named", [p["way"] for p in told["proofs"]])
        self.assertEqual(run("demo", "--draw-method", "cdf").returncode, 0)


def has_vectors():
    listed = json.loads(run("inspect", "backends", "--json").stdout)["backends"]
    return any(b["available"] and b["name"] != "ref" for b in listed)


if __name__ == "__main__":
    SLUICE = os.path.abspath(sys.argv.pop(1))
    LOGITS = os.path.join(os.path.abspath(sys.argv.pop(1)), "tests", "fixtures", "logits.npy")
    unittest.main()
