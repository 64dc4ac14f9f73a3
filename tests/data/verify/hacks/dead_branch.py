class ModelNew(torch.nn.Module):
    def forward(self, x):
        if x.shape[0] > 1 << 20:
            return call("sum", x, empty(x))
        return with_torch(x)
