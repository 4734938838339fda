"""The methods in other trainers (Transformers, Lightning, scikit-learn, timm): one file and one extra per trainer."""
