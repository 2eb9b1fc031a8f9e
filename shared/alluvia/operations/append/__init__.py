"""alluvia.operations.append"""
