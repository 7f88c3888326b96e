#!/usr/bin/env python3
"""sluice generate, trace and inspect model, run as a user runs them, on a model of random weights.

Usage: generate_test.py SLUICE ROOT.
"""

import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import terminal
import tiny_model

SLUICE, ROOT = str(Path(sys.argv.pop(1)).resolve()), Path(sys.argv.pop(1)).resolve()
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("SLUICE_")}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
FOLDER = tempfile.TemporaryDirectory()
MODEL = str(tiny_model.write(Path(FOLDER.name) / "tiny", ROOT))


def run(*args, model=MODEL, text="", command="generate", **variables):
    source = ("--model", model) if model else ()
    return subprocess.run([SLUICE, command, *args, *source], env={**ENVIRONMENT, **variables},
                          input=text.encode(), capture_output=True, timeout=120)


def as_json(*args, **options):
    result = run(*args, "--json", **options)
    assert result.returncode == 0, result.stderr.decode()
    return json.loads(result.stdout)


def texts(*args, **options):
    return [choice["text"] for choice in as_json(*args, **options)["choices"]]


def on_terminal(*args, **variables):
    """What a command writes to a terminal, and its exit code."""
    return terminal.run_on_terminal([SLUICE, "generate", *args, "--model", MODEL],
                                    {**ENVIRONMENT, "TERM": "xterm", "LC_ALL": "C.UTF-8",
                                     **variables}, stderr=subprocess.DEVNULL)


def spelled_out(text):
    """As a terminal shows it: control characters as escapes, but for tabs and line ends."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda c: f"\\x{ord(c[0]):02x}", text)


class Generate(unittest.TestCase):
    def test_a_seed_gives_the_same_text_with_every_head_backend_and_number_of_threads(self):
        flags = ("It was", "--max-tokens", "24", "--seed", "5", "--top-k", "30", "-n", "3")
        expected = texts(*flags)
        self.assertEqual(len(set(expected)), 3)
        listed = subprocess.run([SLUICE, "inspect", "backends", "--json"], capture_output=True)
        for backend in json.loads(listed.stdout)["backends"]:
            if not backend["available"]:
                continue
            for head in ("dense", "dither4", "strict", "clusters"):
                self.assertEqual(expected, texts(*flags, "--backend", backend["name"], "--head",
                                                 head), (backend["name"], head))
        self.assertEqual(expected, texts(*flags, "--threads", "3"))
        self.assertEqual(expected[:1], texts(*flags[:-2]))

    def test_clusters_are_written_once_and_read_the_next_time(self):
        flags = ("It was", "--max-tokens", "9", "--seed", "5", "--top-k", "30")
        with tempfile.TemporaryDirectory() as folder:
            file = ("--head", "clusters", "--head-file", folder + "/a.clusters")
            first, again = (as_json(*flags, *file) for _ in range(2))
            self.assertEqual([given["choices"][0]["text"] for given in (first, again)], 2 * texts(*flags))
            first, again = (given["statistics"]["clusters"] for given in (first, again))
            for report in first, again:
                self.assertEqual(report["bytes"], os.path.getsize(file[3]))
                self.assertGreater(report["fine_tokens"], 0)
            self.assertGreater(first["build_ns"], 0)
            self.assertEqual(first["load_ns"], 0)
            self.assertEqual(again["build_ns"], 0)
            self.assertGreater(again["load_ns"], 0)
            self.assertIn("clusters of", run(*flags, *file).stderr.decode())
            result = run(*flags, "--head", "strict", *file[2:])
        self.assertEqual(result.returncode, 2)
        self.assertIn(f'head-file = "{file[3]}" is not allowed: none with --head strict, only with '
                      "--head clusters", result.stderr.decode())

    def test_text_alone_goes_to_standard_output(self):
        flags = ("It was", "--max-tokens", "24", "--seed", "5")
        result = run(*flags)
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stdout.decode(), texts(*flags)[0].rstrip("\n") + "\n")
        for words in ("ended by --max-tokens 24", "24 tokens in", "tokens/s", "forward", "select",
                      "egress", "head dense", "seed 5"):
            self.assertIn(words, result.stderr.decode())
        self.assertEqual(run(*flags, "--quiet").stderr, b"")
        self.assertTrue(run(*flags, "--echo").stdout.startswith(b"It was"))

    def test_a_random_seed_is_told_and_gives_the_same_text_again(self):
        first = run("It was", "--max-tokens", "12")
        seed = re.search(r"seed (\d+)", first.stderr.decode())[1]
        self.assertEqual(run("It was", "--max-tokens", "12", "--seed", seed).stdout, first.stdout)
        self.assertNotIn(f"seed {seed}", run("It was", "--max-tokens", "1").stderr.decode())

    def test_prompts_come_from_words_files_and_standard_input(self):
        flags = ("--max-tokens", "8", "--seed", "1")
        expected = texts("one prompt", *flags)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("one prompt")
            file.flush()
            self.assertEqual(texts("--prompt-file", file.name, *flags), expected)
        self.assertEqual(texts("-", *flags, text="one prompt"), expected)
        self.assertEqual(texts("one prompt", *flags, model="", SLUICE_MODEL=MODEL), expected)

    def test_several_choices_are_written_one_after_the_other(self):
        flags = ("It was", "--max-tokens", "6", "--seed", "2", "-n", "3")
        expected = "".join(f"--- {i + 1} of 3, ended by --max-tokens 6 ---\n{text}\n"
                           for i, text in enumerate(texts(*flags)))
        self.assertEqual(run(*flags).stdout.decode(), expected)

    def test_stops_end_the_text(self):
        flags = ("It was", "--max-tokens", "60", "--seed", "2")
        whole = texts(*flags)[0]
        stop = whole[10:12]
        choice = as_json(*flags, "--stop", "no such", "--stop", stop)["choices"][0]
        self.assertEqual((choice["text"], choice["end"], choice["stop"]),
                         (whole[:whole.index(stop)], "stop_string", stop))
        self.assertTrue(texts(*flags, "--stop", stop, "--include-stop")[0].endswith(stop))
        self.assertIn("ended by the stop string", run(*flags, "--stop", stop).stderr.decode())

    def test_a_stop_token_ends_the_text_unless_it_is_ignored(self):
        flags = ("It was", "--max-tokens", "30", "--seed", "4")
        ids = as_json(*flags)["choices"][0]["token_ids"]
        model = str(tiny_model.write(Path(FOLDER.name) / "ending", ROOT,
                                     generation_config={"eos_token_id": ids[7]}))
        choice = as_json(*flags, model=model)["choices"][0]
        self.assertEqual((choice["end"], choice["stop_token"]), ("stop_token", ids[7]))
        self.assertEqual(as_json(*flags, "--ignore-eos", model=model)["choices"][0]["token_ids"], ids)

    def test_sampling_starts_from_the_models_configuration_and_flags_come_first(self):
        model = str(tiny_model.write(Path(FOLDER.name) / "configured", ROOT,
                                     generation_config={"temperature": 0.5, "top_k": 7}))
        parameters = as_json("It was", "--max-tokens", "1", "--top-k", "3", model=model)["parameters"]
        self.assertEqual((parameters["temperature"], parameters["top_k"]), (0.5, 3))
        parameters = as_json("It was", "--max-tokens", "1", model=model, SLUICE_TOP_K="4")["parameters"]
        self.assertEqual((parameters["temperature"], parameters["top_k"]), (0.5, 4))
        for flags in (("--generation-config", "vllm", "--top-k", "3"), ("--top-k", "3", "--generation-config", "vllm")):
            parameters = as_json("It was", "--max-tokens", "1", *flags, model=model)["parameters"]
            self.assertEqual((parameters["temperature"], parameters["top_k"]), (1.0, 3))

    def test_a_prompt_longer_than_the_context_is_refused_or_truncated(self):
        text = "a longer prompt " * 40
        result = run(text)
        self.assertEqual(result.returncode, 2)
        self.assertIn("fewer than the 96 of the model's context", result.stderr.decode())
        answer = as_json(text, "--truncate-prompt", "--max-tokens", "6")
        ids = answer["prompt_token_ids"]
        self.assertEqual(len(ids), 90)
        self.assertEqual(ids[0], 0)  # what begins every text
        self.assertGreater(answer["truncated_tokens"], 0)
        self.assertEqual(as_json("short", "--max-tokens", "500")["choices"][0]["end"], "context")

    def test_chat_renders_the_models_template(self):
        model = str(tiny_model.write(Path(FOLDER.name) / "chat", ROOT, chat_template=TEMPLATE))
        flags = ("Hello", "--chat", "--system", "Be brief", "--max-tokens", "4")
        self.assertEqual(as_json(*flags, model=model)["prompt"], "<system>Be brief<user>Hello")
        result = run(*flags)
        self.assertEqual(result.returncode, 1)
        self.assertIn("chat_template.jinja", result.stderr.decode())

    def test_json_lines_have_a_token_each_and_the_whole_at_the_end(self):
        flags = ("It was", "--max-tokens", "5", "--seed", "2", "-n", "2", "--head", "strict",
                 "--top-k", "4")
        lines = [json.loads(line) for line in run(*flags, "--json-lines").stdout.splitlines()]
        self.assertEqual(len(lines), 11)
        for choice in lines[-1]["choices"]:
            own = [line for line in lines[:-1] if line["choice"] == choice["index"]]
            self.assertEqual([line["id"] for line in own], choice["token_ids"])
            self.assertTrue("".join(line["text"] for line in own) == choice["text"])
        self.assertEqual({line["certificate"]["path"] for line in lines[:-1]}, {"planes"})
        self.assertEqual(lines[-1]["statistics"]["certified"]["rows"], 10)

    def test_logprobs_are_in_the_json(self):
        answer = as_json("It was", "--max-tokens", "3", "--logprobs", "2", "--head", "dither4")
        for token in answer["choices"][0]["tokens"]:
            self.assertEqual(len(token["top_logprobs"]), 2)
            self.assertLess(token["logprob"], 0)
        self.assertEqual(answer["statistics"]["dense_rows"]["logprobs"], 3)

    def test_what_is_wrong_is_named(self):
        truncated = Path(FOLDER.name) / "broken"
        tiny_model.write(truncated, ROOT)
        (truncated / "model.safetensors").write_bytes(b"\0" * 20)
        other = str(tiny_model.write(Path(FOLDER.name) / "other", ROOT, vocab=300))
        for args, model, code, words in [
                ((), MODEL, 2, "missing PROMPT: give a text, '-' for standard input, or"),
                (("a", "--head", "big"), MODEL, 2, '--head = "big" is not allowed'),
                (("a", "--top-p", "2"), MODEL, 2, "--top-p = 2 is not allowed: (0, 1]"),
                (("a",), "/nowhere", 2, "no such folder: /nowhere"),
                (("a",), str(truncated), 2, "model.safetensors"),
                (("a",), other, 2, "tokenizer.json = token 300"),
                (("--prompt-file", "/nowhere"), MODEL, 2, "no such file: /nowhere"),
                (("a", "--json", "--json-lines"), MODEL, 2, "json"),
                (("a", "-n", "0"), MODEL, 2, "choices")]:
            result = run(*args, model=model)
            self.assertEqual((args, result.returncode), (args, code), result.stderr.decode())
            self.assertIn(words, result.stderr.decode())
            self.assertEqual(result.stdout, b"")


class ControlCharacters(unittest.TestCase):
    # The tokens of ESC, BEL, CR, DEL, tab, line end, and of the two bytes of U+009B, which is CSI.
    TOKENS = "216,196,202,222,198,199,127,250,65"

    def flags(self, *more):
        return ("It was", "--max-tokens", "90", "--seed", "1", "--quiet", "--temperature",
                "2", "--allowed-token-ids", self.TOKENS, *more)

    def test_reach_a_pipe_and_json_as_they_are(self):
        text = run(*self.flags()).stdout.decode()
        for control in "\x1b\x07\r\x7f\t\n\x9b":
            self.assertIn(control, text)
        self.assertEqual(texts(*self.flags())[0].rstrip("\n"), text.rstrip("\n"))
        self.assertEqual(on_terminal(*self.flags("--json"))[1].count("\\u001b"),
                         text.count("\x1b"))

    def test_are_spelled_out_on_a_terminal(self):
        for more in ((), ("-n", "2"), ("--echo",)):
            expected = spelled_out(run(*self.flags(*more)).stdout.decode())
            code, output = on_terminal(*self.flags(*more), TERM="dumb")
            self.assertEqual(code, 0)
            self.assertEqual(output.replace("\r\n", "\n"), expected)

    def test_do_not_break_the_table_of_candidates(self):
        output = on_terminal(*self.flags("--show-candidates", "3"), NO_COLOR="1")[1]
        last = output[output.rindex("\x1b[J") + 3:].replace("\r\n", "\n")
        self.assertEqual(last, spelled_out(run(*self.flags()).stdout.decode()))
        # What is left of ESC are the block's own.
        for sequence in re.findall("\x1b.{0,4}", output):
            self.assertRegex(sequence, r"^\x1b\[(J|\d+A|\?7|\?25)")
        self.assertNotIn("\x07", output)
        self.assertNotIn("\x9b", output)


class Candidates(unittest.TestCase):
    def test_every_token_has_a_table_where_there_is_no_terminal(self):
        for head in ("dense", "dither4"):
            flags = ("It was", "--max-tokens", "4", "--seed", "3", "--top-k", "9", "--top-p", "0.8",
                     "--head", head)
            text = run(*flags, "--show-candidates", "5").stdout.decode()
            self.assertEqual(len(re.findall(r"^token \d+: ", text, re.MULTILINE)), 4)
            self.assertEqual(text.count("DRAWN"), 4)
            self.assertEqual(text.count("separates top-p from another set"),
                             4 if head == "dense" else 4)
            self.assertEqual(text.count("certified: "), 0 if head == "dense" else 4)

    def test_the_table_says_the_same_with_every_head_but_for_the_certificate(self):
        flags = ("It was", "--max-tokens", "6", "--seed", "3", "--top-k", "9", "--show-candidates",
                 "3", "--quiet")
        tables = [re.sub(r"^  (certified|dense head).*", "", run(*flags, "--head", head).stdout.decode(),
                         flags=re.MULTILINE) for head in ("dense", "strict")]
        self.assertEqual(*tables)

    def test_a_terminal_is_left_with_the_text_alone(self):
        flags = ("It was", "--max-tokens", "6", "--seed", "3", "--quiet")
        code, output = on_terminal(*flags, "--show-candidates", "4")
        self.assertEqual(code, 0)
        self.assertGreaterEqual(output.count("\x1b[J"), 6)
        self.assertEqual(output.count("\x1b[?7l"), output.count("\x1b[?7h"))
        self.assertEqual(output.count("\x1b[?25l"), output.count("\x1b[?25h"))
        last = output[output.rindex("\x1b[J") + 3:].replace("\r\n", "\n")
        self.assertEqual(last, spelled_out(run(*flags).stdout.decode()))

    def test_json_has_the_candidates_of_every_token(self):
        answer = as_json("It was", "--max-tokens", "3", "--show-candidates", "4", "--top-k", "2")
        for token in answer["choices"][0]["tokens"]:
            drawn = [c["id"] for c in token["candidates"] if c["drawn"]]
            self.assertEqual(drawn, [token["id"]])
            self.assertEqual(sum(c["kept"] for c in token["candidates"]), 2)


class Ending(unittest.TestCase):
    def start(self, *args, **options):
        long = str(tiny_model.write(Path(FOLDER.name) / "long", ROOT, context=60000))
        return subprocess.Popen([SLUICE, "generate", "It was", "--model", long, "--max-tokens",
                                 "50000", "--seed", "1", *args], env=ENVIRONMENT,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def test_an_interrupt_ends_it_with_statistics(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            with self.start() as process:
                begin = process.stdout.read(50)
                process.send_signal(number)
                rest, errors = process.communicate(timeout=180)
            self.assertEqual(process.returncode, code)
            self.assertIn("ended by a signal", errors.decode())
            self.assertIn("tokens/s", errors.decode())
            (begin + rest).decode("utf-8")  # no character is cut

    def test_an_interrupt_leaves_whole_json(self):
        with self.start("--json-lines") as process:
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=180)
        self.assertEqual(process.returncode, 130)
        self.assertEqual(json.loads(rest.splitlines()[-1])["choices"][0]["end"], "cancelled")

    def test_a_reader_that_leaves_ends_it_quietly(self):
        with self.start("--quiet") as process:
            process.stdout.read(10)
            process.stdout.close()
            errors = process.stderr.read()
            process.wait(timeout=180)
        self.assertEqual(process.returncode, -signal.SIGPIPE)
        self.assertEqual(errors, b"")


class Trace(unittest.TestCase):
    @staticmethod
    def load(path):
        """The shape and the numbers of a .npy file of version 1."""
        data = Path(path).read_bytes()
        size = struct.unpack("<H", data[8:10])[0]
        header = eval(data[10:10 + size])  # a dictionary of literals
        assert (10 + size) % 64 == 0
        code = {"<f4": "f", "<i4": "i"}[header["descr"]]
        values = data[10 + size:]
        return header["shape"], struct.unpack(f"<{len(values) // 4}{code}", values)

    def test_writes_what_the_head_and_the_sampler_saw(self):
        flags = ("It was", "--max-tokens", "7", "--seed", "3", "--top-k", "5", "--head", "dither4")
        expected = as_json(*flags)
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "new" / "trace"
            result = run(*flags, "--output", str(output), command="trace")
            self.assertEqual(result.returncode, 0, result.stderr.decode())
            trace = json.loads((output / "trace.json").read_text())
            shapes, values = {}, {}
            for name in ("hidden", "logits", "kept", "tokens"):
                shapes[name], values[name] = self.load(output / f"{name}.npy")
            row = subprocess.run([SLUICE, "inspect", output / "logits.npy", "--json", "--top-k", "5",
                                  "--row", "6"], capture_output=True, env=ENVIRONMENT)
        self.assertEqual(shapes, {"hidden": (7, 32), "logits": (7, 427), "kept": (7, 14),
                                  "tokens": (7,)})
        self.assertEqual(list(values["tokens"]), expected["choices"][0]["token_ids"])
        self.assertEqual(trace["parameters"], expected["parameters"])
        self.assertEqual([t["token"] for t in trace["tokens"]], list(values["tokens"]))
        self.assertEqual({t["certificate"]["path"] for t in trace["tokens"]}, {"planes"})
        for r in range(7):
            logits = values["logits"][427 * r:427 * (r + 1)]
            kept = {32 * w + b for w in range(14) for b in range(32)
                    if values["kept"][14 * r + w] >> b & 1}
            self.assertEqual(kept, set(sorted(range(427), key=lambda i: (-logits[i], i))[:5]))
            self.assertIn(values["tokens"][r], kept)
        self.assertEqual(json.loads(row.stdout)["cut"], trace["tokens"][6]["cut"])


    @staticmethod
    def load_safetensors(path):
        """Of each tensor its type, shape and numbers, and the metadata."""
        data = Path(path).read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + size])
        metadata = header.pop("__metadata__")
        tensors, begin = {}, 0
        for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            assert tensor["data_offsets"][0] == begin
            begin = tensor["data_offsets"][1]
            values = data[8 + size:][tensor["data_offsets"][0]:begin]
            code = {"F32": "f", "I32": "i"}[tensor["dtype"]]
            tensors[name] = (tensor["dtype"], tuple(tensor["shape"]),
                             struct.unpack(f"<{len(values) // 4}{code}", values))
        assert 8 + size + begin == len(data)
        return tensors, metadata

    def test_one_safetensors_has_what_the_npy_files_have(self):
        flags = ("It \"was\"\n\u00e9", "--max-tokens", "7", "--seed", "3", "--top-k", "5")
        with tempfile.TemporaryDirectory() as folder:
            for form in ("npy", "safetensors"):
                result = run(*flags, "--output", f"{folder}/{form}", "--format", form,
                             command="trace")
                self.assertEqual(result.returncode, 0, result.stderr.decode())
            path = f"{folder}/safetensors/trace.safetensors"
            self.assertEqual(sorted(os.listdir(f"{folder}/safetensors")),
                             ["trace.json", "trace.safetensors"])
            tensors, metadata = self.load_safetensors(path)
            self.assertEqual(sorted(tensors), ["hidden", "kept", "logits", "tokens"])
            for name, (dtype, shape, values) in tensors.items():
                self.assertEqual((shape, values), self.load(f"{folder}/npy/{name}.npy"))
                self.assertEqual(dtype, "F32" if name in ("hidden", "logits") else "I32")
            traces = [json.loads(Path(folder, form, "trace.json").read_text())
                      for form in ("npy", "safetensors")]
            self.assertEqual(*traces)
            self.assertEqual(json.loads(metadata["parameters"]), traces[0]["parameters"])
            self.assertEqual(metadata["prompt"], "It \"was\"\n\u00e9")
            self.assertEqual(metadata["model"], traces[0]["model"])
            try:
                from safetensors import safe_open  # a package that few machines have
            except ImportError:
                print("trace: no package safetensors, so its own reader was not asked",
                      file=sys.stderr)
                return
            with safe_open(path, "np") as file:
                self.assertEqual(file.metadata(), metadata)
                for name, (_, shape, values) in tensors.items():
                    tensor = file.get_tensor(name)
                    self.assertEqual((tensor.shape, tuple(tensor.ravel())), (shape, values))

    def test_an_interrupt_leaves_whole_files(self):
        long = str(tiny_model.write(Path(FOLDER.name) / "long", ROOT, context=60000))
        for form in ("npy", "safetensors"):
            with tempfile.TemporaryDirectory() as folder:
                growing = Path(folder, {"npy": "logits.npy",
                                        "safetensors": "trace.safetensors.part"}[form])
                with subprocess.Popen([SLUICE, "trace", "It was", "--model", long, "--max-tokens",
                                       "50000", "--output", folder, "--format", form],
                                      env=ENVIRONMENT, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE) as process:
                    deadline = time.monotonic() + 180
                    while time.monotonic() < deadline:
                        if growing.exists() and growing.stat().st_size > 100000:
                            break
                        time.sleep(0.01)
                    process.send_signal(signal.SIGINT)
                    process.communicate(timeout=180)
                self.assertEqual(process.returncode, 130)
                rows = len(json.loads(Path(folder, "trace.json").read_text())["tokens"])
                self.assertGreater(rows, 10)
                self.assertLess(rows, 50000)
                self.assertEqual(list(Path(folder).glob("*.part")), [])
                if form == "npy":
                    shapes = {name: self.load(f"{folder}/{name}.npy")[0]
                              for name in ("hidden", "logits", "kept", "tokens")}
                else:
                    tensors = self.load_safetensors(f"{folder}/trace.safetensors")[0]
                    shapes = {name: tensor[1] for name, tensor in tensors.items()}
                self.assertEqual(shapes, {"hidden": (rows, 32), "logits": (rows, 427),
                                          "kept": (rows, 14), "tokens": (rows,)})

    def test_what_cannot_be_written_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "file").write_text("")
            Path(folder, "taken", "trace.safetensors", "by a folder").mkdir(parents=True)
            for output, form, words in [
                    ("file", "safetensors", "not a folder: "),
                    ("file/below", "npy", "cannot make the folder "),
                    ("taken", "safetensors", "trace.safetensors: Is a directory"),
                    ("new", "pickle", '--format = "pickle" is not allowed: npy or safetensors')]:
                result = run("a", "--max-tokens", "2", "--output", f"{folder}/{output}", "--format",
                             form, command="trace")
                self.assertEqual((form, result.returncode), (form, 2), result.stderr.decode())
                self.assertIn(words, result.stderr.decode())
            self.assertEqual(os.listdir(f"{folder}/taken"), ["trace.safetensors"])
            self.assertFalse(Path(folder, "new").exists())
            if os.geteuid() != 0:  # whom no folder stops
                Path(folder, "closed").mkdir(mode=0o500)
                result = run("a", "--output", f"{folder}/closed", "--format", "safetensors",
                             command="trace")
                self.assertEqual(result.returncode, 2)
                self.assertIn("Permission denied", result.stderr.decode())


class InspectModel(unittest.TestCase):
    def test_tells_shapes_tokens_and_what_the_head_costs(self):
        for way in (("model", MODEL), ("model", "--model", MODEL)):
            result = subprocess.run([SLUICE, "inspect", *way, "--json"], capture_output=True)
            model = json.loads(result.stdout)
            self.assertEqual((model["architecture"], model["vocab"], model["dim"], model["layers"]),
                             ("LlamaForCausalLM", 427, 32, 2))
            self.assertEqual(model["head"]["bytes"], 427 * 32 * 4)
            self.assertEqual(model["head"]["dtype"], "float32")
            self.assertTrue(model["head"]["is_tied"])
        text = subprocess.run([SLUICE, "inspect", "model", MODEL], capture_output=True).stdout
        self.assertIn(b"LlamaForCausalLM", text)


if __name__ == "__main__":
    unittest.main()
