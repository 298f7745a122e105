import torch
from tqdm import tqdm


class History(list):
    def mean(self):
        return sum(self) / max(len(self), 1)


class Engine:
    def __init__(self, model, lr, clip=1.0):
        self.model, self.clip = model, clip
        self.opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, T_max=20)
        self.hooks = {"after_step": []}

    def on(self, event):
        def add(fn):
            self.hooks[event].append(fn)
            return fn

        return add

    def fit(self, loader, epochs):
        history = History()
        for _ in range(epochs):
            for img, label in tqdm(loader, leave=False, disable=None):
                loss = sum(
                    torch.nn.functional.cross_entropy(self.model(i)[None], t[None]) for i, t in zip(img, label)
                )
                self.opt.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
                self.opt.step()
                history.append(loss.item())
                for fn in self.hooks["after_step"]:
                    fn(self, history)
            self.sched.step()
        return history
