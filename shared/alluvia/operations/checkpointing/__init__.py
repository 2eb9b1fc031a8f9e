"""alluvia.operations.checkpointing"""
