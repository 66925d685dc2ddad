"""fastText's languages -> NLLB-200's, for every language that both know.

fastText's lid.176 names a language by the code of its Wikipedia, NLLB-200 by ISO 639-3 and the script of ISO 15924, as
FLORES-200 does. Sources: the labels of lid.176, the language codes of Transformers' NLLB tokenizer, ISO 639-3. Where
fastText's code is a macrolanguage, the member that its Wikipedia is written in was taken; data only.
"""

ENGLISH = "eng_Latn"

NLLB_LANGUAGES = {
    "en": ENGLISH,
    "ar": "arb_Arab",  # Modern Standard Arabic; fastText knows Egyptian apart, and no other dialect
    "az": "azj_Latn",  # North Azerbaijani; South is azb
    "bh": "bho_Deva",  # "Bihari" is the Wikipedia in Bhojpuri; Maithili is mai
    "fa": "pes_Arab",  # Western Persian
    "ku": "kmr_Latn",  # Northern Kurdish, in Latin script; Central is ckb
    "lv": "lvs_Latn",  # Standard Latvian
    "mg": "plt_Latn",  # Plateau Malagasy, the standard
    "mn": "khk_Cyrl",  # Halh Mongolian
    "ms": "zsm_Latn",  # Standard Malay
    "no": "nob_Latn",  # Bokmål; Nynorsk is nn
    "ps": "pbt_Arab",  # Southern Pashto, the only one that NLLB knows
    "qu": "quy_Latn",  # Ayacucho Quechua, the only one that NLLB knows
    "sh": "hrv_Latn",  # Serbo-Croatian in Latin script; NLLB knows Serbian in Cyrillic only
    "sq": "als_Latn",  # Tosk Albanian, the standard; fastText's own "als" is Alemannic
    "zh": "zho_Hans",  # fastText does not tell the scripts apart
    "af": "afr_Latn", "am": "amh_Ethi", "arz": "arz_Arab", "as": "asm_Beng", "ast": "ast_Latn", "azb": "azb_Arab",
    "ba": "bak_Cyrl", "be": "bel_Cyrl", "bg": "bul_Cyrl", "bn": "ben_Beng", "bo": "bod_Tibt", "bs": "bos_Latn",
    "ca": "cat_Latn", "ceb": "ceb_Latn", "ckb": "ckb_Arab", "cs": "ces_Latn", "cy": "cym_Latn", "da": "dan_Latn",
    "de": "deu_Latn", "el": "ell_Grek", "eo": "epo_Latn", "es": "spa_Latn", "et": "est_Latn", "eu": "eus_Latn",
    "fi": "fin_Latn", "fr": "fra_Latn", "ga": "gle_Latn", "gd": "gla_Latn", "gl": "glg_Latn", "gn": "grn_Latn",
    "gu": "guj_Gujr", "he": "heb_Hebr", "hi": "hin_Deva", "hr": "hrv_Latn", "ht": "hat_Latn", "hu": "hun_Latn",
    "hy": "hye_Armn", "id": "ind_Latn", "ilo": "ilo_Latn", "is": "isl_Latn", "it": "ita_Latn", "ja": "jpn_Jpan",
    "jv": "jav_Latn", "ka": "kat_Geor", "kk": "kaz_Cyrl", "km": "khm_Khmr", "kn": "kan_Knda", "ko": "kor_Hang",
    "ky": "kir_Cyrl", "lb": "ltz_Latn", "li": "lim_Latn", "lmo": "lmo_Latn", "lo": "lao_Laoo", "lt": "lit_Latn",
    "mai": "mai_Deva", "min": "min_Latn", "mk": "mkd_Cyrl", "ml": "mal_Mlym", "mr": "mar_Deva", "mt": "mlt_Latn",
    "my": "mya_Mymr", "ne": "npi_Deva", "nl": "nld_Latn", "nn": "nno_Latn", "oc": "oci_Latn", "or": "ory_Orya",
    "pa": "pan_Guru", "pl": "pol_Latn", "pt": "por_Latn", "ro": "ron_Latn", "ru": "rus_Cyrl", "sa": "san_Deva",
    "sc": "srd_Latn", "scn": "scn_Latn", "sd": "snd_Arab", "si": "sin_Sinh", "sk": "slk_Latn", "sl": "slv_Latn",
    "so": "som_Latn", "sr": "srp_Cyrl", "su": "sun_Latn", "sv": "swe_Latn", "sw": "swh_Latn", "ta": "tam_Taml",
    "te": "tel_Telu", "tg": "tgk_Cyrl", "th": "tha_Thai", "tk": "tuk_Latn", "tl": "tgl_Latn", "tr": "tur_Latn",
    "tt": "tat_Cyrl", "ug": "uig_Arab", "uk": "ukr_Cyrl", "ur": "urd_Arab", "uz": "uzn_Latn", "vec": "vec_Latn",
    "vi": "vie_Latn", "war": "war_Latn", "yi": "ydd_Hebr", "yo": "yor_Latn", "yue": "yue_Hant",
}  # fmt: skip
"""lid.176's label (without `__label__`) -> NLLB-200's code. Only languages that both know are listed."""
