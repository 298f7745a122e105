"""State that is shared by the parts of a run."""


class RunState:
    def __init__(self):
        self.total = 1
        self.curve = []

    def start(self, total):
        self.total = total
        self.curve.clear()

    def record(self, loss):
        self.curve.append(loss)

    @property
    def update(self):
        return len(self.curve)

    @property
    def progress(self):
        return self.update / self.total


RUN = RunState()
