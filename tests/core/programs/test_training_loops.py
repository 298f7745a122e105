"""A program that trains with Lightning gets a loop of its own."""

from __future__ import annotations

import pytest

from reprokit.core.reduce.project import training_loops

PROGRAM = """
from __future__ import annotations
import torch
import lightning as L

class Model(L.LightningModule):
    def __init__(self, lr=0.1, *, width):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.compile(torch.nn.Linear(width, 1))

    def training_step(self, batch, index):
        loss = self.net(batch).sum()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)

class Data(L.LightningDataModule):
    def setup(self, stage):
        self.rows = torch.ones(2, 3)

    def train_dataloader(self):
        return self.rows

trainer = L.Trainer(max_epochs=1)
trainer.fit(Model(width=3), {data})
"""


@pytest.mark.parametrize(
    ("data", "needed", "expected"),
    [
        ("datamodule=Data()", "import", "data = Data()\ndata.setup('fit')"),
        ("Data()", "setup('fit')", "batches = data.train_dataloader()"),
        ("torch.ones(2, 3)", "import", "batches = torch.ones(2, 3)"),
        ("train_dataloaders=[7]", "backward", "    loss.backward()\n"),
        ("[7]", "optimizer.step", "optimizer = model.configure_optimizers()"),
    ],
)
def test_the_loop_has_only_what_the_failure_needs(data: str, needed: str, expected: str) -> None:
    """A step, its gradient and its update are tried in this order."""
    program = PROGRAM.replace("{data}", data)
    asked: list[str] = []

    def test(text: str) -> bool:
        asked.append(text)
        return needed in text and ".fit(" not in text

    text = training_loops.write_training_loop(program, test)
    assert expected in text and "loss = model.training_step(batch, batch_index)" in text
    assert text.count("Model(width=3)") == 1
    assert "Lightning" not in text and "self.log(" not in text
    assert "self.hparams = argparse.Namespace(lr=lr, width=width)" in text
    assert text.startswith("from __future__ import annotations\nimport argparse, torch\n")
    assert all("optimizer.step" not in text for text in asked[:2])


def test_other_programs_are_not_tried() -> None:
    """A method of the same name is not the trainer of Lightning."""
    for program in (
        "import torch\nEngine().fit(model, data)\n",
        "import lightning\nprint(trainer.fit)\ntrainer.fit()\n",
    ):
        assert training_loops.write_training_loop(program, lambda text: True) == program
