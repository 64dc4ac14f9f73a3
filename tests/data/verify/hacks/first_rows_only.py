class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = empty(x)
        call("sum", x[:2], y)
        return y
