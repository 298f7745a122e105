import logging

import torch

from .state import RUN

logger = logging.getLogger(__name__)


class Trainer:
    def __init__(self, encoder, criterion, cfg):
        self.encoder, self.criterion, self.cfg = encoder, criterion, cfg
        self.optimizer = torch.optim.AdamW(encoder.parameters(), lr=cfg["lr"])
        self.scheduler = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, cfg["lr"], total_steps=cfg["updates"])
        self.step_fn = torch.compile(self.compute_loss, backend=cfg["backend"]) if cfg["backend"] else self.compute_loss

    def compute_loss(self, view_a, view_b):
        return self.criterion(self.encoder(view_a), self.encoder(view_b))

    def run(self, stream):
        RUN.start(self.cfg["updates"])
        for (view_a, view_b), _ in zip(stream, range(self.cfg["updates"])):
            loss = self.step_fn(view_a, view_b)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.scheduler.step()
            RUN.record(loss.item())
            if RUN.update % self.cfg["log_every"] == 0:
                logger.info("update %d loss %.4f lr %.2e", RUN.update, RUN.curve[-1], self.scheduler.get_last_lr()[0])
