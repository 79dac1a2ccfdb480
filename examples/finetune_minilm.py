"""Fine-tune MiniLM to tell acceptable English sentences (CoLA), and ask it which it is unsure of.

    python examples/finetune_minilm.py --steps 1000

Downloads the pretrained model (80 MB) on first use; finds CoLA in $BAYESATTN_DATA or in the user's cache.
"""

import argparse
import tempfile

import torch
import transformers

import bayesattn as ba
from bayesattn.experiments.data.glue import load_glue
from bayesattn.experiments.data.pretrained import minilm
from bayesattn.huggingface import BayesianTrainer, from_pretrained

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=1000)
parser.add_argument("--dev", type=int, default=256, help="number of dev sentences to predict")
arguments = parser.parse_args()

tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
model = transformers.BertForSequenceClassification.from_pretrained(minilm(), num_labels=2)
ba.convert(model, ba.Weibull(k=10.0, prior=ba.ContextualGamma(beta=0.01)))  # the one line

train = load_glue("CoLA", "train")
encoded = tokenizer(train.texts, truncation=True, max_length=32)
data = [
    {"input_ids": ids, "attention_mask": mask, "labels": label}
    for ids, mask, label in zip(encoded["input_ids"], encoded["attention_mask"], train.labels, strict=True)
]

with tempfile.TemporaryDirectory() as folder:
    trainer = BayesianTrainer(
        model=model,
        args=transformers.TrainingArguments(
            output_dir=folder,
            max_steps=arguments.steps,
            per_device_train_batch_size=16,
            learning_rate=1e-4,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=data,
        data_collator=transformers.DataCollatorWithPadding(tokenizer),
        kl_weight=ba.schedules.linear(arguments.steps // 2),
    )
    trainer.train()
    model.save_pretrained(folder)
    model = from_pretrained(transformers.BertForSequenceClassification, folder)

dev = load_glue("CoLA", "dev")
texts, labels = dev.texts[: arguments.dev], torch.tensor(dev.labels[: arguments.dev])
prediction = ba.predict(model, tokenizer(texts, padding=True, return_tensors="pt"), samples=16, max_rows=256)
right = prediction.label == labels
order = prediction.mutual_information.argsort()
surer, other = (right[half].float().mean() for half in order.chunk(2))
print(f"accuracy {right.float().mean():.3f}; of the surer half {surer:.3f}, of the other {other:.3f}")
print("Least sure of:")
for index in order.flip(0)[:5].tolist():
    print(f"  {prediction.mutual_information[index]:.4f}  {texts[index]}")
