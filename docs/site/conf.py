"""Sphinx for the site that `make docs` builds; scripts/docs.sh sets the variables."""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

project = "Sluice"
author = "The authors of Sluice"
copyright = "the authors of Sluice, Apache-2.0"
release = re.search(r"VERSION (\d+\.\d+\.\d+)", (ROOT / "CMakeLists.txt").read_text())[1]
language = "en_GB"
smartquotes = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_design", "sphinx_copybutton"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 5
suppress_warnings = ["myst.strikethrough"]

autodoc_mock_imports = ["numpy", "torch"]
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
cpp_maximum_signature_line_length = 88
c_maximum_signature_line_length = 88
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries = False  # the navigation of every page would have thousands of entries
if os.environ.get("SLUICE_DOCS_PACKAGE"):
    import python_reference
    from sphinx.ext.autodoc.mock import mock
    with mock(autodoc_mock_imports):
        python_reference.load(Path(os.environ["SLUICE_DOCS_PACKAGE"]), ROOT / "python")

html_theme = "furo"
html_title = f"Sluice {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = [os.environ["SLUICE_DOCS_EXTRA"]]
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
