"""What follows from a configuration: replicas, micro-batches, layers of a stage, parameters, bytes."""

from bedplate_train.configuration import Configuration, Model, Optimizer, Parallel, Tokenizer


def world(configuration: Configuration) -> int:
    return configuration.machines.servers * configuration.machines.gpus_per_server


def replicas(configuration: Configuration) -> int:
    return world(configuration) // (configuration.parallel.tensor * configuration.parallel.pipeline)


def micro_batches(configuration: Configuration) -> int:
    """Micro-batches of a step, in each replica."""
    return configuration.batch.global_ // (replicas(configuration) * configuration.batch.micro)


def stages(model: Model, parallel: Parallel) -> tuple[int, ...]:
    """Layers of each pipeline stage."""
    return parallel.stages or (model.layers // parallel.pipeline,) * parallel.pipeline


def layer_parameters(model: Model) -> int:
    attention = model.hidden * model.head_size * (2 * model.heads + 2 * model.groups)
    return attention + 3 * model.hidden * model.ffn + 2 * model.hidden


def padded_vocabulary(tokenizer: Tokenizer, tensor: int) -> int:
    """Megatron fills the vocabulary up to a multiple of 128 x tensor parallelism."""
    multiple = 128 * tensor
    return -(-tokenizer.vocabulary // multiple) * multiple


def parameters(configuration: Configuration) -> int:
    embedding = (
        padded_vocabulary(configuration.data.tokenizer, configuration.parallel.tensor) * configuration.model.hidden
    )
    return (
        configuration.model.layers * layer_parameters(configuration.model) + 2 * embedding + configuration.model.hidden
    )


def state_bytes(model: Model, parallel: Parallel, optimizer: Optimizer, tokenizer: Tokenizer, replicas: int) -> int:
    """Bytes of weights, gradients and optimizer on the fullest GPU, BF16 training; activations come on top.

    2 for the weight, 4 for its gradient, 12 for master weight and two moments; the distributed optimizer shares
    the 12 among the replicas.
    """
    embedding = padded_vocabulary(tokenizer, parallel.tensor) * model.hidden
    layers = stages(model, parallel)
    held = [count * layer_parameters(model) for count in layers]
    held[0] += embedding
    held[-1] += embedding
    each = 6 + 12 / (replicas if optimizer.distributed else 1)
    return int(max(held) / parallel.tensor * each)
