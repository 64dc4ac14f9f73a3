class ModelNew(torch.nn.Module):
    def forward(self, x):
        return call("sum_in_half", x, empty(x))
