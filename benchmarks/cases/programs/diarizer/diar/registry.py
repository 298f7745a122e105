MODELS = {}


def register(name):
    def wrap(cls):
        if name in MODELS:
            raise KeyError(f"{name} is registered twice")
        MODELS[name] = cls
        return cls

    return wrap
