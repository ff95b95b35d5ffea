"""A small training with the framework that there is; prints losses and weights to the last bit."""
import importlib.util
import os


def with_torch():
    import torch
    torch.manual_seed(1)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(6)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x = torch.randn(512, 1024)
    for _ in range(8):
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        print(loss.item().hex())
    return (weight.double().sum().item() for weight in model.parameters())


def with_tensorflow():
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    import keras
    import numpy
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((512,)), *(keras.layers.Dense(512) for _ in range(8))])
    model.compile("adam", "mse")
    x = numpy.random.default_rng(0).normal(size=(2048, 512)).astype("f4")
    for loss in model.fit(x, x, batch_size=256, epochs=2, shuffle=False, verbose=0).history["loss"]:
        print(float(loss).hex())
    return (float(weight.sum()) for weight in model.get_weights())


for total in with_torch() if importlib.util.find_spec("torch") else with_tensorflow():
    print(total.hex())
