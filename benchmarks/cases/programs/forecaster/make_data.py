"""Make the data of the program."""

import json, numpy

numpy.save("rows.npy", numpy.random.rand(40, 5))
json.dump({"data": "rows.npy", "batch": 8, "layers": 2}, open("settings.json", "w"))
