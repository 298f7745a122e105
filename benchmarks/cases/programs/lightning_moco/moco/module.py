import copy

import lightning as L
import torch
import torch.nn.functional as F

from .encoder import Encoder
from .queue import NegativeQueue


class MoCo(L.LightningModule):
    def __init__(self, width=8, dim=16, queue=32, batch=4, momentum=0.99, temperature=0.2, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.encoder_q = Encoder(width, dim)
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
        self.queue = NegativeQueue(queue, dim, batch)
        self.compiled_contrast = torch.compile(self.contrast)
        self.history = []

    @torch.no_grad()
    def momentum_update(self):
        m = self.hparams.momentum
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            k.lerp_(q, 1 - m)

    def contrast(self, q, k):
        pos = (q * k).sum(-1, keepdim=True)
        logits = torch.cat([pos, self.queue(q)], 1) / self.hparams.temperature
        loss = F.cross_entropy(logits, logits.new_zeros(len(q), dtype=torch.long))
        self.queue.shift()
        return loss

    def training_step(self, batch, batch_idx):
        self.momentum_update()
        xq, xk = batch
        q = self.encoder_q(xq)
        with torch.no_grad():
            k = self.encoder_k(xk)
        loss = self.compiled_contrast(q, k)
        # with several ranks the keys are gathered first, hence not in the compiled part
        self.queue.put(self.all_gather(k) if self.trainer.world_size > 1 else k)
        self.history.insert(0, k.detach().clone())
        self.log("loss", loss, prog_bar=True)
        self.log("queue_age", self.queue.age.float().mean())
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        g = self.hparams.batch
        for i, k in enumerate(self.history[: self.hparams.queue // g]):
            held = self.queue.keys[i * g:(i + 1) * g]
            if not torch.allclose(held, k, atol=1e-5):
                raise RuntimeError(f"the queue's group {i} is not the key batch of {i} steps ago")

    def configure_optimizers(self):
        return torch.optim.AdamW(self.encoder_q.parameters(), lr=self.hparams.lr)
