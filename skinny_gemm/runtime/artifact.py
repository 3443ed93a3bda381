from ..artifact import CompiledKernel, LaunchArguments, Parameter, Resources  # noqa: F401
