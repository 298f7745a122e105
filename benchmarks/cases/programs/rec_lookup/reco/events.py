import csv
import logging

import torch

log = logging.getLogger(__name__)


class EventReader:
    """Reads (user, item) events; ids are those of the catalogue of the day of the export."""

    def __init__(self, path, batch):
        with open(path, newline="") as f:
            rows = [(int(r["user"]), int(r["item"])) for r in csv.DictReader(f)]
        self.table = torch.tensor(rows)
        self.batch = batch
        log.info("%d events", len(rows))

    def __iter__(self):
        for part in self.table.split(self.batch):
            if len(part) == self.batch:
                yield part[:, 0].contiguous(), part[:, 1].contiguous()
