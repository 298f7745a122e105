"""A program of several files becomes one file that does the same."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable

import pytest

from reprokit.core.reduce.project.inline_modules import ModuleSource, Unjoinable, join_modules

FILES = {
    "net": (
        "import math\nfrom .parts import scale\nfrom parts import scale as by\nsize = 3\ndef"
        " run(x):\n    return by(x) + size\n"
    ),
    "parts": (
        '"""Words."""\nsize = 10\ndef scale(x):\n    return x * size\nif __name__ == "__main__":\n '
        "   raise SystemExit\n"
    ),
    "pkg": "",
    "pkg.inner": (
        "from . import other\nfrom .other import half as h\ndef run(x):\n    return other.half(x) +"
        " h(x)\n"
    ),
    "pkg.other": "def half(x):\n    return x / 2\n",
}


def find_in(files: dict[str, str]) -> Callable[[str], ModuleSource | None]:
    """Return a function that finds a module; one with modules below it is a package."""

    def find(name: str) -> ModuleSource | None:
        is_package = any(other.startswith(f"{name}.") for other in files)
        return ModuleSource(files[name], is_package) if name in files else None

    return find


def output_of(text: str, files: dict[str, str] = FILES) -> str:
    """Return the output of the joined program."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(join_modules(text, find_in(files)), {"__name__": "__main__"})
    return out.getvalue().strip()


@pytest.mark.parametrize(
    "text",
    [
        "from net import run\nprint(run(2))\n",
        "import net\nprint(net.run(2))\n",
        "import net as n, math\nprint(n.run(2), end='')\n",
        "def main():\n    from net import run as go\n    print(go(2))\nmain()\n",
        "from net import *\nprint(run(2))\n",
        "import parts, net\nprint(net.size - 3 + parts.size + 13)\n",
    ],
)
def test_own_files_replace_their_imports(text: str) -> None:
    """Both files have their own ``size``, and each keeps it."""
    files = {**FILES, "net": FILES["net"].replace("from .parts import scale\n", "")}
    assert output_of(text, files) == "23"
    assert "import net" not in join_modules(text, find_in(files))


def test_packages_and_relative_imports() -> None:
    """Modules of a package import each other with relative names."""
    assert output_of("from pkg.inner import run\nprint(run(3))\n") == "3.0"
    assert output_of("import pkg.inner\nprint(pkg.inner.run(3))\n") == "3.0"
    assert output_of("from pkg import inner\nprint(inner.run(3))\n") == "3.0"


@pytest.mark.parametrize(
    "exports",
    [
        "from .model import Model\n",
        "from .model import *\n",
        "from .model import Model as Net\nModel = Net\n",
        "from . import model\nfrom pkg.model import Model\n",
        "from .inner import Model\n",
    ],
)
def test_a_package_exports_names_of_its_modules(exports: str) -> None:
    """``from pkg import Model`` works if ``pkg/__init__.py`` imports it, also over two steps."""
    files = {
        "pkg": exports,
        "pkg.model": "from .parts import scale\nclass Model:\n    size = scale(2)\n",
        "pkg.parts": "def scale(x):\n    return x * 5\n",
        "pkg.inner": "from ..pkg.model import Model\n" if False else "from .model import Model\n",
    }
    assert output_of("from pkg import Model\nprint(Model.size)\n", files) == "10"
    assert output_of("import pkg\nprint(pkg.Model.size)\n", files) == "10"


@pytest.mark.parametrize(
    "loads",
    [
        "import importlib\nModel = importlib.import_module('net').Model\n",
        "from importlib import import_module\nnet = import_module('net')\nModel = net.Model\n",
        "net = __import__('net')\nModel = getattr(net, 'Model')\n",
        "import runpy\nModel = runpy.run_path('net.py')['Model']\n",
        "import runpy, pathlib\nHERE = pathlib.Path('.')\n"
        "names = runpy.run_path(str(HERE / 'net.py'))\nModel = names['Model']\n",
        "import runpy\ndef load():\n    names = runpy.run_path('./net.py')\n"
        "    return names.get('Model')\nModel = load()\n",
        "import importlib.util, sys\nspec = importlib.util.spec_from_file_location('n', 'net.py')\n"
        "net = importlib.util.module_from_spec(spec)\nsys.modules['n'] = net\n"
        "spec.loader.exec_module(net)\nModel = net.Model\n",
        "exec(open('net.py').read())\n",
        "from pathlib import Path\nexec(compile(Path('net.py').read_text(), 'net.py', 'exec'))\n",
        "import importlib\nModel = importlib.import_module('pkg.deep').Model\n",
        "import runpy, os\nModel = runpy.run_path(os.path.join('pkg', 'deep.py'))['Model']\n",
    ],
)
def test_a_file_that_is_loaded_at_run_time_is_joined(loads: str) -> None:
    """Its name is a text in the program: the joined program loads no file."""
    net = "SIZE = 5\nclass Model:\n    size = SIZE * 2\nif __name__ == '__main__':\n    1 / 0\n"
    files = {"net": net, "pkg": "", "pkg.deep": net}
    text = f"{loads}print(Model.size)\n"
    assert output_of(text, files) == "10"
    joined = join_modules(text, find_in(files))
    assert "net.py" not in joined and "'net'" not in joined and "deep" not in joined


def test_a_file_that_no_text_names_stays_loaded() -> None:
    """A computed name, a library and data are loaded as before."""
    text = (
        "import importlib, runpy, sys\nname = 'ma' + 'th'\nmath = importlib.import_module(name)\n"
        "json = importlib.import_module('json')\nexec('x = 3')\nprint(math.floor(2.5), x)\n"
    )
    assert join_modules(text, find_in({"net": ""})) == text


@pytest.mark.parametrize(
    "loads",
    [
        "def load():\n    return importlib.import_module('net')\nprint(load().X)\n",
        "net = importlib.import_module('net')\nprint(getattr(net, 'X', None))\n",
        "print(runpy.run_path(PLUGINS + '/my-own/net.py')['X'])\n",
        "print(runpy.run_path('net.py', run_name='__main__')['X'])\n",
    ],
)
def test_a_file_that_is_used_as_a_module_stays_loaded(loads: str) -> None:
    """The program would not be the same with an import."""
    text = f"import importlib, runpy\nfrom parts import PLUGINS\n{loads}"
    files = {"net": "X = 1\nif __name__ == '__main__':\n    X = 2\n", "parts": "PLUGINS = '/x'\n"}
    joined = join_modules(text, find_in(files))
    assert ("import_module('net')" in joined or "net.py'" in joined) and "X = 1" not in joined


def test_a_package_runs_before_its_modules() -> None:
    """``pkg/__init__.py`` may set what its modules use."""
    files = {
        "pkg": "import math\nmath.changed = 3\n",
        "pkg.net": "import math\nX = math.changed\n",
    }
    assert (
        output_of('"""Words."""\nfrom pkg.net import X\nprint(X, __doc__)\n', files) == "3 Words."
    )


def test_a_program_of_one_file_stays_as_it_is() -> None:
    """Its layout does not change."""
    text = "import math  # words\nprint( math.pi )\n"
    assert join_modules(text, find_in({})) == text


def test_files_that_cannot_be_joined_raise_an_error() -> None:
    """A name that a file defines only at run time raises Unjoinable."""
    with pytest.raises(Unjoinable, match="has no missing"):
        join_modules("from parts import missing\n", find_in(FILES))
    with pytest.raises(Unjoinable, match=r"parts\.missing"):
        join_modules("import parts\nparts.missing()\n", find_in(FILES))


def test_files_that_import_each_other_end() -> None:
    """A cycle of imports is followed once."""
    files = {"a": "import b\ndef f():\n    return 1\n", "b": "import a\ndef g():\n    return 2\n"}
    assert output_of("import a, b\nprint(a.f() + b.g())\n", files) == "3"
