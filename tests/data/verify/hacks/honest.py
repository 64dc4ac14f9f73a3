class ModelNew(torch.nn.Module):
    def forward(self, x):
        return call("sum", x, empty(x))
