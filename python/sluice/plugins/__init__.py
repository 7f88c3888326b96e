"""Entry points that engines find by themselves: sluice.plugins.vllm and sluice.plugins.sglang.

Each imports its engine, and nothing else imports them.
"""
