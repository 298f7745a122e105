"""Finds the classes of a folder of plugins: plugins/<group>/<group>_<name>.py has ``Plugin``."""
import importlib.util
import pathlib
import sys


class Plugins:
    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.loaded = {}

    def module_name(self, group, name):
        return "_".join(["plugin", group, name.replace("-", "_")])

    def load(self, group, name):
        key = self.module_name(group, name)
        if key not in self.loaded:
            path = self.root / group / f"{group.rstrip('s')}_{name.replace('-', '_')}.py"
            spec = importlib.util.spec_from_file_location(key, path)
            module = importlib.util.module_from_spec(spec)
            sys.modules[key] = module
            spec.loader.exec_module(module)
            self.loaded[key] = module
        return self.loaded[key].Plugin

    def create(self, group, name, *args, **kwargs):
        return self.load(group, name)(*args, **kwargs)
