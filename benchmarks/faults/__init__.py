"""What goes wrong in the field, done to real processes: lines that are cut or bad, crashes, crowds.

link         two network namespaces with a bad line between them
server       the server process, without a model
device       a device process, which notes every receipt
crew         starts and ends such processes, and holds the journal against the receipts
scenarios    each fault, and what it cost
"""
