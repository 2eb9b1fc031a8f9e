"""alluvia.operations.planning"""
