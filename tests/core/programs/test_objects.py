"""An object that is created once becomes variables and functions that do the same."""

from __future__ import annotations

import pytest

from reprokit.core.reduce.passes import objects, straight_line
from tests.support.program_output import printed

TRAINER = """
class Trainer:
    rate = 2

    def __init__(self, model, lr=3):
        self.model, self.lr = model, lr
        self.count = 0

    def _step(self, x):
        self.count += 1
        return self.model(x) * self.lr * self.rate

    @property
    def steps(self):
        return self.count

    @staticmethod
    def shown(x):
        return f'<{x}>'

    def fit(self, xs):
        for x in xs:
            print(self.shown(self._step(x)))

def train(trainer):
    trainer.fit([1, 2])
    print(trainer.steps, trainer.lr)

model = lambda x: x + 1
trainer = Trainer(model)
train(trainer)
"""
INHERITS = """
class Checks:
    limit = 5

    def check(self, x):
        return self(x) < self.limit

class Base:
    def __init__(self, width):
        self.width = width

    def run(self, x):
        return x * self.width

    def name(self):
        return 'base'

class Net(Base, Checks):
    def __init__(self, width, extra):
        super().__init__(width)
        self.extra = extra

    def run(self, x):
        return super().run(x) + self.extra

    def __call__(self, x):
        return self.run(x)

net = Net(2, 1)
print(net(3), net.check(1), net.check(3), net.name())
"""
NESTED = """
class Inner:
    def seen(self, x):
        return [x, self.last()]

    def last(self):
        return 7

class Outer:
    def __init__(self):
        self.inner = Inner()

    def __call__(self, x):
        return self.inner.seen(x)

print(Outer()(3))
for n in range(2):
    print(n)
"""
INPUTS = """
class Engine:
    def __init__(self, input, model):
        self.input = input
        self.model = model
        self.max = max(input)

    def go(self):
        total = 0
        for max in self.input:
            total += max * self.model
        return total - self.max

print(Engine([1, 2], model=3).go())
"""


@pytest.mark.parametrize("program", [TRAINER, INHERITS, NESTED, INPUTS])
def test_the_program_without_the_class_prints_the_same(program: str) -> None:
    """Attributes, methods, properties, inherited methods and objects in objects are kept."""
    expected, texts = printed(program), list[str]()

    def test(text: str) -> bool:
        texts.append(text)
        return printed(text) == expected

    reduced = objects.dissolve_objects(program, test)
    assert "class" not in reduced and "self" not in reduced
    assert len(texts) <= 2 * program.count("class ")
    assert printed(straight_line.straighten_program(reduced, test)) == expected


def test_properties_of_an_object_that_stays_become_their_values() -> None:
    """A guard on an attribute needs the object, and not the properties on the way to it."""
    program = (
        "class State:\n    def __init__(self):\n        self.seen = [1]\n"
        "    @property\n    def count(self):\n        return len(self.seen)\n"
        "    @property\n    def progress(self):\n        return self.count + 1\n"
        "    @property\n    def own(self):\n        return self\n"
        "RUN = State()\nprint(RUN.own.progress, [RUN.count])\n"
    )
    reduced = objects.dissolve_objects(
        program, lambda text: "class State" in text and printed(text) == "2 [1]\n"
    )
    assert "property" not in reduced
    assert "print(len(RUN.seen) + 1, [len(RUN.seen)])" in reduced


def test_a_free_name_is_found_for_each_attribute() -> None:
    """Both usual names are taken."""
    program = "x, a_x = 0, 1\nclass A:\n    x = 2\n    def f(self):\n        return self.x\nprint(A().f())\n"
    reduced = objects.dissolve_objects(program, lambda text: printed(text) == "2\n")
    assert "class" not in reduced and "a_x_2 = 2" in reduced


def test_functions_of_an_object_can_be_inlined() -> None:
    """A straight line is left of an object whose methods are called once, also in a loop."""
    program = TRAINER.replace("train(trainer)\n", "for number in range(2):\n    train(trainer)\n")
    expected = printed(program)

    def test(text: str) -> bool:
        return printed(text) == expected

    reduced = straight_line.straighten_program(objects.dissolve_objects(program, test), test)
    assert "def train" not in reduced and "def fit" not in reduced and "def init" not in reduced
    assert "global" in reduced  # the step is called in a loop inside an expression


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("two objects", ("trainer = Trainer(model)", "trainer = Trainer(Trainer(model).model)")),
        ("a type", ("train(trainer)\n", "train(trainer)\nprint(Trainer.rate)\n")),
        ("itself", ("self.count = 0", "self.count = id(self)")),
        ("a special method", ("def fit(", "def __len__(")),
        ("a decorator", ("class Trainer", "@staticmethod\nclass Trainer")),
        ("a class method", ("@staticmethod", "@classmethod")),
    ],
)
def test_other_objects_stay(name: str, change: tuple[str, str]) -> None:
    """No program without the class is proposed for an object that is needed as an object."""
    program = TRAINER.replace(*change)
    assert program != TRAINER
    asked: list[str] = []
    assert objects.dissolve_objects(program, lambda text: bool(asked.append(text))) == program
    assert all("class Trainer" in text for text in asked), name
