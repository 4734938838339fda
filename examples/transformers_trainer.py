"""Train a small text classifier with Hugging Face's Trainer and ALR, stop it, and go on where it was.

python examples/transformers_trainer.py [FOLDER]

The texts are made up, so that nothing has to be downloaded: a topic decides most of the words, and the topics 0 and 1
share half of theirs. So the residual labels of topic 0 should point to topic 1.
"""

import sys
import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from adaptive_labels import AdaptiveLabelLoss
from adaptive_labels.adapters.transformers import CriterionTrainer

TOPICS, WORDS = 4, 40


def make_texts(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Texts of eight words: six of the topic, two of any."""
    random = torch.Generator().manual_seed(seed)
    examples = []
    for _ in range(count):
        topic = int(torch.randint(TOPICS, (1,), generator=random))
        first = 5 * topic if topic < 2 else 10 * topic  # topics 0 and 1 overlap
        own = first + torch.randint(10, (6,), generator=random)
        words = torch.cat([own, torch.randint(WORDS, (2,), generator=random)])
        examples.append({"input_ids": words, "labels": torch.tensor(topic)})
    return examples


def make_trainer(folder: str, epochs: int) -> CriterionTrainer:
    """A trainer as anyone would write it; the criterion is the one line that differs."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=TOPICS,
    )
    arguments = TrainingArguments(
        folder,
        num_train_epochs=epochs,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=4,
        learning_rate=2e-3,
        weight_decay=0.01,
        lr_scheduler_type="constant",
        save_strategy="epoch",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    return CriterionTrainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=make_texts(512, seed=1),
        eval_dataset=make_texts(256, seed=2),
        compute_metrics=lambda found: {"accuracy": (found.predictions.argmax(-1) == found.label_ids).mean()},
        criterion=AdaptiveLabelLoss(TOPICS),
    )


def main(folder: str) -> None:
    """Train two epochs, then go on to the fourth from the checkpoint, residual labels included."""
    make_trainer(folder, epochs=2).train()
    trainer = make_trainer(folder, epochs=4)
    trainer.train(resume_from_checkpoint=True)
    print(f"accuracy {trainer.evaluate()['eval_accuracy']:.1%}")
    for confusion in trainer.criterion.most_confused(3):
        print(f"topic {confusion.label} is taken for topic {confusion.taken_for}: {confusion.probability:.2f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
