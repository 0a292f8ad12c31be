"""Configuration of the documentation: ``make docs`` builds it."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from urllib.request import urlopen

from sphinx_gallery.sorting import ExplicitOrder

import dropmargin

sys.path.insert(0, str(Path(__file__).parent))  # gallery_images

project = "dropmargin"
author = "the dropmargin developers"
release = version = dropmargin.__version__
copyright = f"{author}, version {version}"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "**/sg_execution_times.rst"]
templates_path = ["_templates"]

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3


def is_reachable(address):
    """Return whether the objects of another project can be linked: a build without a network has plain text."""
    try:
        urlopen(f"{address}objects.inv", timeout=10).close()
    except OSError:
        return False
    return True


_PROJECTS = {
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
}
intersphinx_mapping = {name: (address, None) for name, address in _PROJECTS.items() if is_reachable(address)}

default_role = "py:obj"  # `names` in docstrings are links
autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": True}
# Types are in the docstrings.
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False

html_theme = "pydata_sphinx_theme"
html_title = f"dropmargin {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "_static" / "scorer.js")
html_show_sourcelink = False
html_sidebars = {"benchmarks": [], "changelog": [], "contributing": []}  # pages without subpages
html_theme_options = {
    "logo": {"text": "dropmargin", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_FIRST = ["plot_missing_pixels.py", "plot_text.py", "plot_sensors.py", "plot_form.py", "plot_dropout_training.py"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "image_scrapers": ("gallery_images.scrape",),
    "reset_modules": ("gallery_images.set_style",),
    "ignore_pattern": r"(^|/)(?!plot_)[^/]+\.py$",
    "within_subsection_order": ExplicitOrder([*_FIRST, "*"]),
    "show_memory": False,
    "download_all_examples": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
}


def skip_members_of_other_packages(app, what, name, obj, skip, options):
    """Leave out what scikit-learn documents, such as `get_params`."""
    return skip or not str(getattr(obj, "__module__", "dropmargin")).startswith("dropmargin")


def setup(app):
    """Connect the function above."""
    app.connect("autodoc-skip-member", skip_members_of_other_packages)


# Without a screen, `plt.show()` in an example warns.
warnings.filterwarnings("ignore", message=".*non-interactive.*")
