"""The model of a run and its parts for training, from Megatron's parsed arguments."""

import dataclasses
from argparse import Namespace
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import (
    get_gpt_layer_local_spec,
    get_gpt_layer_with_transformer_engine_spec,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer, get_standard_config_overrides
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.training.argument_utils import core_transformer_config_from_args


def transformer(arguments: Namespace) -> TransformerConfig:
    made: TransformerConfig = core_transformer_config_from_args(arguments)
    return made


def gpt(arguments: Namespace, config: TransformerConfig) -> GPTModel:
    """This rank's part of the model."""
    if arguments.transformer_impl == "transformer_engine":
        layer = get_gpt_layer_with_transformer_engine_spec()
    else:
        layer = get_gpt_layer_local_spec(normalization=arguments.normalization)
    made = GPTModel(
        config,
        layer,
        arguments.padded_vocab_size,
        arguments.max_position_embeddings,
        position_embedding_type=arguments.position_embedding_type,
        rotary_base=arguments.rotary_base,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        share_embeddings_and_output_weights=not arguments.untie_embeddings_and_output_weights,
    )
    return made.cuda(torch.cuda.current_device())


@dataclasses.dataclass
class Assembly:
    """What is trained and what trains it."""

    config: TransformerConfig
    module: GPTModel
    parallel: DistributedDataParallel
    optimizer: Any
    scheduler: OptimizerParamScheduler


def assemble(arguments: Namespace) -> Assembly:
    config = transformer(arguments)
    bare = gpt(arguments, config)
    module = Float16Module(config, bare) if arguments.bf16 else bare
    wrapped = DistributedDataParallel(config, _parallel_config(arguments), module)
    wrapped.broadcast_params()
    settings = OptimizerConfig(**_shared(OptimizerConfig, arguments))
    optimizer = get_megatron_optimizer(settings, [wrapped], config_overrides=get_standard_config_overrides(settings))
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    if arguments.overlap_grad_reduce:
        config.no_sync_func = wrapped.no_sync
    if arguments.overlap_param_gather and arguments.align_param_gather:
        config.param_sync_func = wrapped.start_param_sync
    return Assembly(config, bare, wrapped, optimizer, scheduler(arguments, optimizer))


def scheduler(arguments: Namespace, optimizer: Any) -> OptimizerParamScheduler:
    """Counts in samples, as Megatron does."""
    samples = arguments.global_batch_size
    decay = arguments.lr_wsd_decay_iters
    return OptimizerParamScheduler(
        optimizer,
        init_lr=arguments.lr_warmup_init,
        max_lr=arguments.lr,
        min_lr=arguments.min_lr,
        lr_warmup_steps=arguments.lr_warmup_iters * samples,
        lr_decay_steps=arguments.lr_decay_iters * samples,
        lr_decay_style=arguments.lr_decay_style,
        start_wd=arguments.start_weight_decay,
        end_wd=arguments.end_weight_decay,
        wd_incr_steps=arguments.train_iters * samples,
        wd_incr_style=arguments.weight_decay_incr_style,
        wsd_decay_steps=None if decay is None else decay * samples,
        lr_wsd_decay_style=arguments.lr_wsd_decay_style,
    )


def _parallel_config(arguments: Namespace) -> DistributedDataParallelConfig:
    """As megatron.training.training makes it, which is a heavy import."""
    given = _shared(DistributedDataParallelConfig, arguments)
    given.update(
        grad_reduce_in_fp32=arguments.accumulate_allreduce_grads_in_fp32,
        check_for_nan_in_grad=arguments.check_for_nan_in_loss_and_grad,
        bucket_size=arguments.ddp_bucket_size,
        average_in_collective=arguments.ddp_average_in_collective,
        pad_buckets_for_high_nccl_busbw=arguments.ddp_pad_buckets_for_high_nccl_busbw,
    )
    return DistributedDataParallelConfig(**given)


def _shared(kind: Any, arguments: Namespace) -> dict[str, Any]:
    """The fields of a configuration object that Megatron's arguments have under the same name."""
    names = [field.name for field in dataclasses.fields(kind) if field.init]
    return {name: getattr(arguments, name) for name in names if hasattr(arguments, name)}
