#!/usr/bin/env python3
"""Runs sluice bench and looks at its tables, files and exit codes. Usage: bench_test.py SLUICE."""

import json
import math
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

SLUICE = ""  # path of the command, set from the command line
# Parameters must come from the test alone.
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}


def run(*args, **variables):
    return subprocess.run([SLUICE, *args], env={**ENVIRONMENT, **variables}, timeout=120,
                          stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")


def has_json():
    return "simdjson" in json.loads(run("--version", "--json").stdout)["libraries"]


def has_sanitizer():
    with open(SLUICE, "rb") as program:
        code = program.read()
    return b"__asan_init" in code or b"__tsan_init" in code


def write_npy(path, rows):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {len(rows[0])})}}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode())
        for row in rows:
            file.write(struct.pack(f"<{len(row)}f", *row))


def bench_json(*args):
    """The JSON of a quick bench and its text, after what every bench must do."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "bench.json")
        result = run("bench", *args, "--quick", "--json", path)
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert set(report) == {"env", "commit", "rows"}
    assert {"cpu", "cores", "compiler", "os", "floor"} <= set(report["env"])
    assert "--quick" in result.stdout
    return report["rows"], result.stdout


def available_backends():
    listed = json.loads(run("inspect", "backends", "--json").stdout)["backends"]
    return [b["name"] for b in listed if b["available"]]


class Bench(unittest.TestCase):
    def assert_complete(self, rows, text, keys):
        for row in rows:
            self.assertTrue(row.get("exact", True), row)
            for key in keys:
                self.assertGreater(row[key], 0, row)
            for key in ("task", "peer"):
                if row.get(key):
                    self.assertIn(row[key], text)

    def vector_backends(self):
        found = [b for b in available_backends() if b != "ref"]
        if not found:
            self.skipTest("no vector backend here")
        return found

    def test_select_is_exact_and_its_json_has_every_cell(self):
        rows, text = bench_json("select", "--vocab", "4096", "--task",
                                "greedy,top-p,k50-p0.9-draw", "--distribution", "mid,masked")
        self.assert_complete(rows, text, ("ns", "floor_ns", "peer_ns"))
        cells = {(r["task"], r["distribution"], r["dtype"], r["cache"], r["backend"])
                 for r in rows}
        self.assertEqual(len(cells), 3 * 2 * 2 * 2 * len(available_backends()))
        # One row a peer: top-p may have VQSort as well.
        peers = {(r["task"], r["peer"]) for r in rows}
        self.assertEqual(len(rows), len(cells) // 3 * len(peers))
        self.assertEqual("VQSort" in text, ("top-p", "vqsort_exp_cumsum") not in peers)

    def test_tables_are_narrow_and_say_nothing_of_targets_unless_asked(self):
        select = ("select", "--distribution", "mid", "--dtype", "fp32", "--rows", "2")
        for args in (select, ("topk", "--columns", "5000", "--k", "300"), ("algorithms", "--vocab", "1024"),
                     ("pipeline", "--vocab", "1024", "--backend", "ref"), ("head", "--planes", "strict"), ("tune",)):
            if args[0] in ("algorithms", "tune") and available_backends() == ["ref"]:
                continue
            _, text = bench_json(*args)
            for line in text.splitlines():
                self.assertLessEqual(len(line), 120, line)
            self.assertNotRegex(text, r"(?i)missed|\bmet\b|target")
        _, text = bench_json(*select, "--targets")
        self.assertRegex(text, r"target.* (met|missed)")
        self.assertRegex(text, r"cpu-\S+: \d+ of \d+ targets met" if len(available_backends()) > 1 else "Summary")

    def test_select_measures_the_algorithms_that_are_named(self):
        rows, _ = bench_json("select", "--vocab", "4096", "--rows", "2", "--task", "top-50",
                             "--distribution", "mid", "--dtype", "fp32", "--algorithm",
                             "sort,certified,sort")
        wanted = {("ref", "definition")} | {(b, a) for b in available_backends() if b != "ref"
                                            for a in ("sort", "certified")}
        self.assertEqual({(r["backend"], r["algorithm"]) for r in rows}, wanted)

    def test_draw_measures_both_methods(self):
        rows, text = bench_json("draw", "--vocab", "1024", "--distribution", "mid", "--dtype",
                                "fp32")
        self.assert_complete(rows, text, ("ns", "floor_ns", "peer_ns"))
        self.assertEqual({r["task"] for r in rows},
                         {t + m for t in ("draw", "top-p-draw", "k50-p0.9-draw")
                          for m in ("", "-cdf")})
        self.assertEqual({r["bench"] for r in rows}, {"draw"})

    def test_algorithms_are_ranked(self):
        vectors = self.vector_backends()
        rows, text = bench_json("algorithms", "--vocab", "1024")
        self.assert_complete(rows, text, ("ns", "mean_ns", "floor_ns", "rows_per_second"))
        for task in ("top-p", "top-50"):
            for backend in vectors:
                ranked = [r for r in rows if (r["task"], r["backend"]) == (task, backend)]
                self.assertEqual(ranked, sorted(ranked, key=lambda r: r["mean_ns"]))
                names = {r["algorithm"] for r in ranked if "algorithm" in r}
                self.assertTrue({"auto", "certified", "sort", "radix"} <= names)
                for name in names:
                    self.assertIn(name, text)

    def test_algorithms_take_rows_and_parameters_of_files(self):
        vectors = self.vector_backends()
        with tempfile.TemporaryDirectory() as folder:
            logits, params = os.path.join(folder, "a.npy"), os.path.join(folder, "p.json")
            source = random.Random(5)
            write_npy(logits, [[source.gauss(0, 3) for _ in range(4096)] for _ in range(6)])
            with open(params, "w", encoding="utf-8") as file:
                json.dump({"top_k": 7, "min_p": 0.01, "temperature": 0.7}, file)
            rows, text = bench_json("algorithms", "--rows-file", logits, "--rows", "4")
            self.assertEqual({r["vocab"] for r in rows}, {4096})
            self.assertEqual({r["task"] for r in rows}, {"top-p", "top-50"})
            self.assertIn("4 different fp32 rows", text)
            sort = [r for r in rows if r.get("algorithm") == "sort"]
            self.assertEqual({r["read_once"] for r in sort}, {0})
            for row in rows:
                if row.get("algorithm") == "certified" and row["task"] == "top-50":
                    self.assertGreater(row["read_once"], 0)

            if not has_json():
                return
            rows, _ = bench_json("algorithms", "--rows-file", logits, "--params", params)
            self.assertEqual({(r["task"], r["backend"]) for r in rows},
                             {("params", backend) for backend in vectors})
            self.assertEqual([r for r in rows if "peer" in r], [])
            self.assertTrue(all(r["exact"] for r in rows))

    def test_algorithms_name_rows_and_parameters_that_cannot_be(self):
        self.vector_backends()
        good = [0.5 * i for i in range(64)]
        with tempfile.TemporaryDirectory() as folder:
            path, params = os.path.join(folder, "a.npy"), os.path.join(folder, "p.json")
            with open(params, "w", encoding="utf-8") as file:
                file.write('{"top_p": 2}')
            for rows, flags, said in (
                    ([good[:63]], (), "rows of at least 64 logits"),
                    ([good, [math.nan] + good[1:]], (), "row 1 = NaN or +inf"),
                    ([good[1:] + [math.inf]], (), "row 0 = NaN or +inf"),
                    ([[-math.inf] * 64], (), "row 0 = -inf everywhere"),
                    ([good], ("--vocab", "64"), "--vocab"),
                    ([good], ("--params", params), "top_p = 2 is not allowed"),
                    ([good], ("--params", "/nowhere"), "/nowhere")):
                if "--params" in flags and not has_json():
                    continue
                write_npy(path, rows)
                result = run("bench", "algorithms", "--quick", "--rows-file", path, *flags)
                self.assertEqual((result.returncode, result.stdout), (2, ""), said)
                self.assertIn(said, result.stderr)

    def test_topk_is_exact_on_all_scores_with_hints_of_every_kind(self):
        backends = available_backends()
        rows, text = bench_json("topk", "--columns", "5000", "--k", "300", "--dtype", "fp32,bf16",
                                "--backend", ",".join(backends))
        self.assert_complete(rows, text, ("ns", "floor_ns", "floors"))
        self.assertEqual(len({r["distribution"] for r in rows}), 15)
        hints = {r["hint"] for r in rows if r["distribution"] == "normal"}
        self.assertEqual(hints, {"none", "threshold", "1.5 %", "44 %", "90 %"})
        self.assertEqual(len(rows), (14 + len(hints)) * 2 * 2 * len(backends))
        for row in rows:
            if row["hint"] in ("44 %", "90 %"):  # of 1.5 %, some more are of the answer by chance
                self.assertAlmostEqual(100 * row["overlap"], float(row["hint"][:-2]), delta=15)

    def test_topk_hints_a_step_of_a_file_by_the_one_before(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "steps.npy")
            source = random.Random(6)
            step = [source.gauss(0, 1) for _ in range(3000)]
            write_npy(path, [step, step, [-x for x in step]])
            rows, _ = bench_json("topk", "--rows-file", path, "--k", "100", "--backend", "ref")
            self.assertEqual({(r["distribution"], r["hint"]) for r in rows},
                             {("steps", "none"), ("steps", "threshold"), ("steps", "step before")})
            self.assertTrue(all(r["exact"] for r in rows))
            self.assertAlmostEqual(max(r["overlap"] for r in rows), 2 / 3)
            write_npy(path, [step[1:] + [math.nan]])
            result = run("bench", "topk", "--quick", "--rows-file", path)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("row 0 = NaN", result.stderr)

    def test_pipeline_times_every_kind_and_mixed_batches(self):
        alone, text = bench_json("pipeline", "--vocab", "1024", "--backend", "ref")
        self.assert_complete(alone, text, ("ns", "ns_a_row", "floor_ns"))
        self.assertEqual({r["batch"] for r in alone if r["task"] != "mixed"}, {1})
        self.assertEqual([r["batch"] for r in alone if r["task"] == "mixed"], [8])
        shared, _ = bench_json("pipeline", "--vocab", "1024", "--backend", "ref", "--threads", "3")
        self.assertEqual({r["threads"] for r in shared}, {3})

    def test_head_compares_every_token_with_the_dense_heads(self):
        rows, text = bench_json("head", "--threads", "2")
        self.assert_complete(rows, text, ("ns", "peer_ns", "ratio", "bytes_share", "survivors"))
        self.assertEqual({r["kind"] for r in rows}, {"dither4", "strict"})
        self.assertEqual({r["task"] for r in rows}, {"greedy", "k50-p0.9", "softmax", "p0.9", "p0.9-id"})
        self.assertTrue(all(r["exact"] for r in rows))
        self.assertEqual({r["threads"] for r in rows}, {2})
        rows, text = bench_json("head", "--planes", "strict")
        self.assertEqual({r["kind"] for r in rows}, {"strict"})

    def test_trained_head_compares_answers_and_intervals_with_the_dense_heads(self):
        if "trained-head" not in run("bench", "--help").stdout:
            self.skipTest("built without models")
        if run("inspect", "model").returncode != 0:
            self.skipTest("no built-in model")
        text = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "models.md")
        rows, printed = bench_json("trained-head", text, "--states", "12")
        self.assertTrue(all(r["exact"] for r in rows))
        self.assertEqual({r["source"] for r in rows}, {"text", "own"})
        answers = [r for r in rows if r["task"] == "answers"]
        asked = {(r["source"], r["kind"], r["question"]) for r in answers}
        self.assertEqual(len(asked), len(answers))
        self.assertEqual(len(asked), 2 * 2 * 11)
        for r in answers:
            self.assertEqual(r["states"], 12)
            self.assertIn(r["question"], printed)
            reasons = r["dense_survivors"] + r["dense_mass"] + r["dense_hidden"]
            reasons += r["dense_parameters"]
            self.assertEqual(r["dense"], reasons)
            self.assertEqual(r["dense_parameters"], 0, r)
            self.assertEqual(r["dense_survivors"], 0, r)
            if not r["question"].startswith("p=0.9"):
                self.assertEqual(r["dense_mass"], 0, r)
        for r in rows:
            if r["task"] == "intervals":
                self.assertEqual(r["row_steps"], 12 * r["vocab"])
                self.assertTrue(0.05 < r["largest"] <= 1, r)  # they hold logits, and not by far
            if r["task"] == "clusters":
                self.assertIn(r["states"], (1, 2))  # one in eight
                self.assertTrue(0 < r["opened_k1"] <= r["opened_k50"] <= 1, r)

    def test_head_peers_count_what_clusters_open_and_what_is_wrong_without_a_certificate(self):
        if "head-peers" not in run("bench", "--help").stdout:
            self.skipTest("built without models")
        if run("inspect", "model").returncode != 0:
            self.skipTest("no built-in model")
        if has_sanitizer():
            self.skipTest("a thousand means of 8192 rows take 5 s, with a sanitizer minutes")
        text = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "models.md")
        rows, printed = bench_json("head-peers", text, "--states", "12")
        self.assertEqual({r["source"] for r in rows}, {"text", "own"})
        clusters = [r for r in rows if r["task"] == "cluster-softmax"]
        self.assertEqual(len(clusters), 2 * 2 * 5)
        for r in clusters:
            self.assertEqual(r["violated"], 0)
            self.assertLessEqual(r["most_variation"], r["epsilon"])
            self.assertTrue(r["variation"] <= r["most_variation"] and 0 < r["rows_share"] <= 1, r)
        for source in ("text", "own"):
            opened = [r["rows_share"] for r in clusters if r["source"] == source]
            for some in (opened[:5], opened[5:]):  # by epsilon, which rises
                self.assertEqual(some, sorted(some, reverse=True))
        heads = {r["method"]: r for r in rows if r["task"] == "uncertified" and r["source"] == "text"}
        self.assertEqual(len(heads), 6)
        self.assertLess(heads["int8"]["variation"], heads["int4"]["variation"])
        probed = [heads[f"clusters, 1/{n} of rows"]["variation"] for n in (16, 8, 4)]
        self.assertEqual(probed, sorted(probed, reverse=True))
        for method in heads:
            self.assertIn(method, printed)

    def test_head_peers_of_a_made_head_see_whether_its_rows_lie_in_clusters(self):
        if "head-peers" not in run("bench", "--help").stdout:
            self.skipTest("built without models")
        opened = {}
        for tree in ("0", "1"):
            rows, printed = bench_json("head-peers", "--head", "4096x64", "--tree", tree,
                                       "--clusters", "200,50", "--rounds", "3")
            self.assertIn("4096 x 64", printed)
            self.assertEqual({(r["source"], r["tree"], r["vocab"], r["dim"], r["rounds"])
                              for r in rows}, {("made", int(tree), 4096, 64, 3)})
            clusters = [r for r in rows if r["task"] == "cluster-softmax"]
            self.assertEqual(len(clusters), 2 * 5)
            for r in clusters:
                self.assertEqual(r["violated"], 0)
                self.assertLessEqual(r["most_variation"], r["epsilon"])
            opened[tree] = min(r["rows_share"] for r in clusters)
        # All of the variance is a tree's, of 128 leaves with equal rows; or none of it.
        self.assertLess(opened["1"], 0.5)
        self.assertGreater(opened["0"], 0.9)

    def test_head_peers_take_a_text_or_a_made_head(self):
        if "head-peers" not in run("bench", "--help").stdout:
            self.skipTest("built without models")
        for args, what in (((), "missing TEXT: give a file"),
                           (("--head", "4096x64", "TEXT"), "TEXT excludes --head"),
                           (("--head", "4096"), "--head = 4096 is not allowed: VxD, V tokens from 64"),
                           (("--head", "4096x0"), "--head = 4096x0 is not allowed: VxD"),
                           (("--head", "4096x64x1"), "--head = 4096x64x1 is not allowed: VxD")):
            result = run("bench", "head-peers", *args)
            self.assertEqual(result.returncode, 2, args)
            self.assertIn(what, result.stderr)

    def test_trained_head_refuses_a_text_without_a_beginning(self):
        if "trained-head" not in run("bench", "--help").stdout:
            self.skipTest("built without models")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "short.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("Once upon a time")
            result = run("bench", "trained-head", path, "--quick")
        self.assertEqual(result.returncode, 2)
        self.assertIn("text", result.stderr)

    def test_tune_writes_a_table(self):
        self.vector_backends()
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "policy.inc")
            rows, text = bench_json("tune", "--output", table)
            with open(table, encoding="utf-8") as file:
                lines = file.read().splitlines()
        self.assertIn(table, text)
        winners = [r for r in rows if r["is_winner"]]
        entries = [line for line in lines if line.startswith("SLUICE_POLICY(")]
        self.assertTrue(any("sluice bench tune" in line for line in lines))
        self.assertEqual(len(winners), len({(r["backend"], r["kind"], r["vocab"]) for r in rows}))
        self.assertGreaterEqual(len(entries), len(winners))
        for entry in entries:
            self.assertRegex(entry, r"^SLUICE_POLICY\(kCpu\w+, k\w+, (\d+|kMaxVocab), k\w+\)  // ")

    def test_tune_leaves_the_table_alone_when_it_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            table = os.path.join(folder, "policy.inc")
            with open(table, "w", encoding="utf-8") as file:
                file.write("as it was")
            result = run("bench", "tune", "--quick", "--backend", "ref", "--output", table)
            self.assertEqual(result.returncode, 1)
            self.assertIn("vector backend", result.stderr)
            with open(table, encoding="utf-8") as file:
                self.assertEqual(file.read(), "as it was")

    def test_rows_are_the_ones_that_the_header_names(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows")
            args = ("bench", "rows", "--vocab", "100", "--rows", "3", "--distribution",
                    "flat,peaked", "--output", path)
            self.assertEqual(run(*args).returncode, 0)
            with open(path, "rb") as file:
                first = file.read()
            with open(path + ".json", encoding="utf-8") as file:
                header = json.load(file)
            self.assertEqual(run(*args).returncode, 0)
            with open(path, "rb") as file:
                self.assertEqual(file.read(), first)
        self.assertEqual((header["dtype"], header["shape"]), ("float32", [6, 100]))
        self.assertEqual(len(first), 6 * 100 * 4)
        self.assertEqual([(g["distribution"], g["first_row"]) for g in header["groups"]],
                         [("peaked", 0), ("flat", 3)])

    def test_rows_in_json_are_those_of_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows")
            result = run("bench", "rows", "--vocab", "64", "--quick", "--output", path, "--json",
                         path + ".out")
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            with open(path + ".out", encoding="utf-8") as file:
                report = json.load(file)
            with open(path + ".json", encoding="utf-8") as file:
                groups = json.load(file)["groups"]
            self.assertEqual(set(report), {"env", "commit", "rows"})
            self.assertEqual([(r["distribution"], r["first_row"], r["rows"])
                              for r in report["rows"]],
                             [(g["distribution"], g["first_row"], g["rows"]) for g in groups])
            self.assertEqual(os.path.getsize(path), sum(r["rows"] for r in report["rows"]) * 256)

    def test_peers_from_python_are_timed_or_named(self):
        script = os.path.join(os.path.dirname(__file__), "..", "..", "bench", "peers_python.py")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "peers.json")
            result = subprocess.run(
                [sys.executable, "-B", script, "--sluice", SLUICE, "--quick", "--vocab", "4096",
                 "--distribution", "mid", "--output", path], env=ENVIRONMENT, timeout=240,
                stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8")
            if result.returncode != 0:  # not even numpy is here
                self.assertIn("pip install numpy", result.stderr)
                return
            with open(path, encoding="utf-8") as file:
                report = json.load(file)
        for package in ("torch", "transformers", "llama-cpp-python"):
            self.assertTrue(package in report["env"]["peers"] or f"pip install {package}" in
                            result.stdout, package)
        self.assert_complete(report["rows"], result.stdout, ("ns", "floor_ns", "peer_ns"))

    def test_unknown_names_and_values_are_refused(self):
        for command, flag, value in (
                ("select", "--task", "draw-cdf"), ("select", "--distribution", "no-such"),
                ("select", "--dtype", "int8"), ("select", "--backend", "tpu"),
                ("select", "--algorithm", "bogo"), ("select", "--vocab", "63"),
                ("select", "--rows", "0"), ("draw", "--task", "top-50"),
                ("pipeline", "--threads", "0"), ("head", "--threads", "0"), ("algorithms", "--vocab", "1"),
                ("tune", "--backend", "tpu"), ("rows", "--rows", "-1"), ("topk", "--k", "0"),
                ("topk", "--scores", "no-such"), ("topk", "--backend", "tpu")):
            result = run("bench", command, flag, value)
            self.assertEqual((result.returncode, result.stdout), (2, ""), (command, flag))
            for said in (flag[2:], value):
                self.assertIn(said, result.stderr)

    def test_unwritable_file_is_a_failure_before_anything_is_measured(self):
        commands = [("select", "--json"), ("draw", "--json"), ("pipeline", "--json"),
                    ("head", "--json"), ("rows", "--output"), ("topk", "--json")]
        if available_backends() != ["ref"]:  # without a vector backend these fail for that
            commands += [("algorithms", "--json"), ("tune", "--json"), ("tune", "--output")]
        for command, flag in commands:
            result = run("bench", command, flag, "/no/such/folder/bench.out")
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn("/no/such/folder/bench.out", result.stderr)


if __name__ == "__main__":
    SLUICE = os.path.abspath(sys.argv.pop(1))
    unittest.main()
