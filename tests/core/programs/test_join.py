"""A program of several files becomes one file that does the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reprokit.core.reduce.project.inline_modules import ModuleSource, Unjoinable, join_modules
from tests.support.program_output import printed

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
    return printed(join_modules(text, find_in(files))).strip()


def test_one_import_in_two_forms_has_one_name() -> None:
    """Different imports with one name, and variables of the program, keep apart."""
    files = {
        "a": "from os import path as p\nimport math, os\nmodel = 1\ndef get():\n    return model\n",
        "b": "import os.path as p\nimport os\nfrom math import sin\nx = p.sep + os.sep\n",
        "c": "import math as p\nfrom cmath import sin\ny = p.floor(1.5), sin(0)\n",
    }
    text = "import a, b, c\nmodel = 2\nprint(a.get(), a.model, model, b.x, c.y)\n"
    assert output_of(text, files) == "1 1 2 // (1, 0j)"
    joined = join_modules(text, find_in(files))
    assert "os_2" not in joined and "as p_2" in joined


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
        "print(runpy.run_path(PLUGINS + '/my-own/net.py')['X'])\n",
        "print(runpy.run_path('net.py', run_name='__main__')['X'])\n",
    ],
)
def test_a_file_that_runs_as_a_program_stays_loaded(loads: str) -> None:
    """The program would not be the same with an import."""
    text = f"import importlib, runpy\nfrom parts import PLUGINS\n{loads}"
    files = {"net": "X = 1\nif __name__ == '__main__':\n    X = 2\n", "parts": "PLUGINS = '/x'\n"}
    joined = join_modules(text, find_in(files))
    assert ("import_module('net')" in joined or "net.py'" in joined) and "X = 1" not in joined


@pytest.mark.parametrize(
    "uses",
    [
        "def load():\n    return importlib.import_module('net')\nprint(load().X)\n",
        "net = importlib.import_module('net')\nprint(getattr(net, 'X', None))\n",
        "import net\nprint(getattr(net, 'X'))\n",
        "import net\nprint(net.__dict__['X'])\n",
        "import net as n\nprint(vars(n)['X'])\n",
        "from pkg import deep\nprint(getattr(deep, 'X'))\n",
        "import pkg.deep\nprint([getattr(m, 'X') for m in (pkg.deep,)][0])\n",
    ],
)
def test_a_module_that_is_used_as_an_object_is_joined(uses: str) -> None:
    """An object has the names that the module always defines."""
    net = "import math\nX = 1\nif math.pi < 3:\n    Y = 2\n"
    files = {"net": net, "pkg": "", "pkg.deep": net}
    text = f"import importlib\n{uses}"
    assert output_of(text, files) == "1"
    joined = join_modules(text, find_in(files))
    assert "'net'" not in joined and "import net" not in joined and "Y=Y" not in joined


COMPUTED = {
    "plugins.block_a": "from host import BASE\nclass Plugin:\n    size = BASE + 1\n",
    "plugins.block_b": "class Plugin:\n    size = 2\n",
    "plugins.other": "1 / 0\n",
    "host": "BASE = 5\n",
}


@pytest.mark.parametrize(
    "loads",
    [
        "Plugin = importlib.import_module(f'plugins.block_{name}').Plugin\n",
        "Plugin = getattr(importlib.import_module('plugins.block_' + name), 'Plugin')\n",
        "Plugin = importlib.import_module('plugins.block_{}'.format(name)).Plugin\n",
        "Plugin = runpy.run_path(os.path.join('plugins', f'block_{name}.py'))['Plugin']\n",
        "def load(name):\n    path = pathlib.Path('plugins') / f'block_{name}.py'\n"
        "    spec = importlib.util.spec_from_file_location(name, path)\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(module)\n    return module.Plugin\nPlugin = load(name)\n",
    ],
)
def test_a_file_with_a_computed_name_is_looked_up(loads: str) -> None:
    """Only the files whose names fit are joined; the program loads no file."""
    text = (
        "import importlib.util, os, pathlib, runpy, sys\nfrom host import BASE\nname = 'ab'[0]\n"
        f"{loads}print(Plugin.size, BASE)\n"
    )
    joined = join_modules(text, find_in(COMPUTED), every=lambda: list(COMPUTED))
    assert printed(joined) == "6 5\n"
    assert "1 / 0" not in joined and "exec_module" not in joined and "import_module" not in joined


def test_a_file_that_is_looked_up_may_look_up_others() -> None:
    """A model of a computed name has a layer of a computed name."""
    files = {
        "models.a": "import importlib\nk = 'b'\nL = importlib.import_module(f'layers.l_{k}').L\n",
        "layers.l_b": "L = 4\n",
    }
    text = "import importlib\nn = 'a'\nprint(importlib.import_module(f'models.{n}').L)\n"
    joined = join_modules(text, find_in(files), every=lambda: list(files))
    assert printed(joined) == "4\n"


def test_files_that_are_loaded_for_what_they_register_are_joined() -> None:
    """Their names are those of a folder, and nothing uses the modules."""
    files = {
        "nets": "import importlib, os\nfrom .registry import ALL\nfor name in ['net_a']:\n"
        "    importlib.import_module(f'nets.net_{name[4:]}')\n",
        "nets.registry": "ALL = {}\n",
        "nets.net_a": "from .registry import ALL\nALL['a'] = 7\n",
    }
    text = "from nets import ALL\nprint(ALL['a'])\n"
    joined = join_modules(text, find_in(files), every=lambda: list(files))
    assert printed(joined) == "7\n"


def test_files_with_the_same_name_stay_loaded() -> None:
    """The path of one of them would give the other one."""
    files = {"p.a.config": "V = 1\n", "p.b.config": "V = 2\n"}
    text = "import runpy\nn = input()\nprint(runpy.run_path(f'p/{n}/config.py')['V'])\n"
    assert join_modules(text, find_in(files), every=lambda: list(files)) == text


@pytest.mark.parametrize(
    "loads",
    [
        "importlib.import_module(name)",
        "runpy.run_path(name)",
        "importlib.import_module(f'x.{name}')",
    ],
)
def test_a_name_that_says_too_little_stays_computed(loads: str) -> None:
    """Nothing is written of the name, or no file of the program fits."""
    text = f"import importlib, runpy\nname = input()\nprint({loads})\n"
    assert join_modules(text, find_in(COMPUTED), every=lambda: list(COMPUTED)) == text


def test_names_of_an_except_block_are_names_of_the_module() -> None:
    """An optional library is replaced there."""
    net = "try:\n    from no_such_library import fast\nexcept ImportError:\n    fast = None\n"
    assert output_of("from net import fast\nprint(fast)\n", {"net": net}) == "None"
    assert output_of("import net\nprint(net.fast)\n", {"net": net}) == "None"


def test_imports_for_type_checkers_are_left_out() -> None:
    """They may be in a cycle, in which a name is not defined yet."""
    files = {
        "a": "from __future__ import annotations\nfrom typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from b import B\nclass A:\n    def f(self, b: B):\n        return 3\n",
        "b": "from a import A\nclass B(A):\n    pass\n",
    }
    assert output_of("from a import A\nfrom b import B\nprint(B().f(A()))\n", files) == "3"


def test_a_module_finds_its_data_beside_its_own_file() -> None:
    """``__file__`` of the joined program is that of the script."""

    def find(name: str) -> ModuleSource | None:
        text = "import os\nHERE = os.path.dirname(__file__)\n"
        return ModuleSource(text, place="pkg/data.py") if name == "pkg.data" else None

    joined = join_modules("from pkg.data import HERE\nprint(HERE)\n", find)
    assert printed(joined, "/home/me/my project/train.py") == "/home/me/my project/pkg\n"


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
