"""Using a trained model: predictions of a file, and models fetched from a server, each with a model card.

predicting a file of a trained model as a function of its inputs; `edgeflock.load`; predictions as CSV
fetching   a model from a server, its card in Markdown, and adapters in the layout of peft
"""
