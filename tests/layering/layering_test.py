#!/usr/bin/env python3
"""layering.py finds what it has to find, shown on small made-up trees."""

import tempfile
import unittest
from pathlib import Path

from layering import check


class Layering(unittest.TestCase):

    def offences(self, files):
        """The messages for a tree given as {path: text}."""
        with tempfile.TemporaryDirectory() as folder:
            for path, text in files.items():
                file = Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text, encoding="utf-8")
            return list(check(Path(folder)))

    def assert_one(self, files, *parts):
        offences = self.offences(files)
        self.assertEqual(len(offences), 1, offences)
        for part in parts:
            self.assertIn(part, offences[0])

    def test_allows_down_own_folder_and_public(self):
        self.assertEqual([], self.offences({
            "cli/main.cc": '#include "sluice/sluice.hpp"\n#include "sampler/plan.h"\n',
            "src/select/select.cc": '#include "select/core.h"\n#include "semantics/order.h"\n'
                                    '#include "core.h"\n#include <vector>\n',
            "src/select/core.h": "",
            "src/semantics/order.h": '#include "semantics/bits.h"\n#include <cstdint>\n',
            "include/sluice/cut.hpp": '#include <cstdint>\n#include "sluice/status.hpp"\n',
            "include/sluice/sluice.h": "#include <stdint.h>\n",
        }))

    def test_names_line_and_rule_of_an_upward_include(self):
        self.assert_one({"src/select/select.cc": '#include <vector>\n#include "sampler/plan.h"\n'},
                        "src/select/select.cc:2", '"sampler/plan.h"', "upwards")

    def test_rejects_siblings(self):
        self.assert_one({"src/draw/draw.cc": '#include "select/core.h"\n'}, "sideways")

    def test_rejects_a_sibling_by_relative_path(self):
        self.assert_one({"src/draw/draw.cc": '#include "../select/core.h"\n',
                         "src/select/core.h": ""}, "sideways")

    def test_grammar_includes_text_and_support_only(self):
        self.assertEqual([], self.offences(
            {"src/grammar/a.cc": '#include "text/normalize/utf8.h"\n#include "support/check.h"\n'}))
        self.assert_one({"src/grammar/a.cc": '#include "sampler/plan.h"\n'}, "text only")
        self.assert_one({"src/text/a.cc": '#include "grammar/reason.h"\n'}, "upwards")

    def test_no_product_folder_includes_research(self):
        for folder in ("src/select", "src/server", "src/capi", "examples/cpp"):
            self.assert_one({f"{folder}/a.cc": '#include "research/qrita/qrita.h"\n'}, "research")
        for file in ("include/sluice/sluice.hpp", "src/head/a.cc", "src/capi/a.cc", "examples/cpp/a.cc"):
            self.assert_one({file: '#include "sluice/research/clusters.hpp"\n'}, "research")

    def test_research_includes_itself_and_every_stage(self):
        self.assertEqual([], self.offences({"include/sluice/research/device_clusters.hpp":
                                            '#include "sluice/research/clusters.hpp"\n'}))
        self.assert_one({"include/sluice/research/qrita.hpp": '#include "research/qrita/qrita.h"\n'},
                        "public headers")
        self.assertEqual([], self.offences(
            {"src/research/qrita/a.cu": '#include "select/cuda/row_rules.cuh"\n'}))

    def test_the_command_and_python_offer_research_by_name(self):
        for file in ("cli/a.cc", "python/a.cc"):
            self.assertEqual([], self.offences({file: '#include "sluice/research/algorithms.hpp"\n'}))

    def test_semantics_includes_itself_only(self):
        self.assert_one({"src/semantics/order.h": '#include "support/bits.h"\n'}, "upwards")
        self.assert_one({"src/semantics/order.h": '#include "hwy/highway.h"\n'}, "itself")

    def test_heads_include_nothing_of_samplers(self):
        for file in ("src/head/certified/a.cc", "include/sluice/certified_head.hpp"):
            self.assert_one({file: '#include "sluice/sampler.hpp"\n'}, "head", "sampler.hpp")
        self.assert_one({"src/head/cuda/a.cu": '#include "sluice/tensor.hpp"\n',
                         "include/sluice/cuda/head.hpp": '#include "sluice/cuda/rows.hpp"\n',
                         "include/sluice/cuda/rows.hpp": '#include "sluice/draw.hpp"\n',
                         "include/sluice/draw.hpp": ""}, "cuda/head.hpp:1", "draw.hpp")
        self.assertEqual([], self.offences(
            {"src/sampler/a.cc": '#include "sluice/sampler.hpp"\n#include "head/a.h"\n',
             "include/sluice/sampler.hpp": '#include "sluice/draw.hpp"\n'}))

    def test_public_headers_include_the_standard_library_only(self):
        for include in ("<cuda_runtime.h>", "<torch/torch.h>", "<nlohmann/json.hpp>",
                        '"semantics/order.h"', '"cuda_runtime.h"'):
            self.assert_one({"include/sluice/cut.hpp": f"#include {include}\n"}, "public headers")

    def test_rejects_a_folder_without_a_level(self):
        self.assert_one({"src/misc/file.cc": ""}, "src/misc/file.cc", "not in the table")


if __name__ == "__main__":
    unittest.main()
