"""Written sentences and how they are said, in each language that has a table of words."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myxtts.text.languages.by_table import TABLE_LANGUAGES
from myxtts.text.languages.generic import load_table, split_keys
from myxtts.text.normalize import normalize_text, split_sentences

GERMAN = {
    "Wir treffen uns am 3. Mai.": "Wir treffen uns am dritten Mai.",
    "3. Mai 2024": "dritter Mai zweitausendvierundzwanzig",
    "Der 1. Januar ist ein Feiertag.": "Der erste Januar ist ein Feiertag.",
    "vom 3. bis 5. Mai": "vom dritten bis fünften Mai",
    "am 3.5.2024": "am dritten Mai zweitausendvierundzwanzig",
    "geboren am 24.12.1984 in Köln": "geboren am vierundzwanzigsten Dezember neunzehnhundertvierundachtzig in Köln",
    "2024-05-03": "dritter Mai zweitausendvierundzwanzig",
    "Sie geht in die 2. Klasse.": "Sie geht in die zweite Klasse.",
    "in der 2. Klasse": "in der zweiten Klasse",
    "das 19. Jahrhundert": "das neunzehnte Jahrhundert",
    "im 19. Jahrhundert": "im neunzehnten Jahrhundert",
    "2. Auflage": "zweite Auflage",
    "1. Kapitel": "erstes Kapitel",
    "Das kostet 12,50 €.": "Das kostet zwölf Euro fünfzig.",
    "1 € oder 0,99 €": "ein Euro oder neunundneunzig Cent",
    "€ 1.234,00": "eintausendzweihundertvierunddreißig Euro",
    "3,5 Mio. € und 1 Mrd. Dollar": "drei Komma fünf Millionen Euro und eine Milliarde Dollar",
    "½ l Milch und 3/4 kg Mehl": "ein halber Liter Milch und drei Viertel Kilogramm Mehl",
    "2 1/2 Stunden, 1½ Jahre": "zweieinhalb Stunden, eineinhalb Jahre",
    "1 h und 30 min": "eine Stunde und dreißig Minuten",
    "80 m² Wohnung": "achtzig Quadratmeter Wohnung",
    "10-20 Leute": "zehn bis zwanzig Leute",
    "5–7 % Zinsen": "fünf bis sieben Prozent Zinsen",
    "1 % von 1.000.000": "ein Prozent von eine Million",
    "-5 °C bei 100 km/h": "minus fünf Grad Celsius bei einhundert Kilometer pro Stunde",
    "um 14:30 Uhr": "um vierzehn Uhr dreißig",
    "um 1:05": "um ein Uhr fünf",
    "um 8.15 Uhr": "um acht Uhr fünfzehn",
    "Äpfel bzw. Birnen, z. B. rote": "Äpfel beziehungsweise Birnen, zum Beispiel rote",
    "Dr. Müller u. a. sagten, d.h. ca. 3": "Doktor Müller unter anderem sagten, das heißt circa drei",
    "Prof. Dr. Schmidt, Hauptstr. 5, Nr. 7": "Professor Doktor Schmidt, Hauptstr. fünf, Nummer sieben",
    "Kühe, Schafe usw. Dann kam er.": "Kühe, Schafe und so weiter. Dann kam er.",
    "Vgl. S. 12 und § 5": "Vergleiche Seite zwölf und Paragraph fünf",
    "Es waren 12. Dann kamen 3.": "Es waren zwölf. Dann kamen drei.",
    "Version 2.10.3": "Version zwei Punkt zehn Punkt drei",
    "Tel. 030 1234567": "Telefon null drei null, eins zwei drei vier fünf sechs sieben",
    "Am 1. und 2. Mai, den 3.5.": "Am ersten und zweiten Mai, den dritten Mai.",
    "Ludwig XIV. war König.": "Ludwig der Vierzehnte war König.",
    "die 80er Jahre, 12,- €": "die achtziger Jahre, zwölf Euro",
    "5 x 3 = 15": "fünf mal drei gleich fünfzehn",
    "x² und Fläche in m²": "x hoch zwei und Fläche in Quadratmeter",
    "Das Spiel endete 3:1.": "Das Spiel endete drei zu eins.",
    "1 Stunde, 1 Euro und 1.234,50 Euro": "eine Stunde, ein Euro und eintausendzweihundertvierunddreißig Euro fünfzig",
    "21 Tage im Jahr 2001": "einundzwanzig Tage im Jahr zweitausendeins",
}
DUTCH = {
    "op 3 mei 2024": "op drie mei tweeduizendvierentwintig",
    "03-05-2024": "drie mei tweeduizendvierentwintig",
    "3/5/2024 om 9:05": "drie mei tweeduizendvierentwintig om negen uur vijf",
    "de 3e keer": "de derde keer",
    "de 1ste plaats, de 2de plaats": "de eerste plaats, de tweede plaats",
    "in de 19e eeuw": "in de negentiende eeuw",
    "Het kost € 12,50.": "Het kost twaalf euro vijftig.",
    "1 € en 0,20 €": "één euro en twintig cent",
    "€ 1.250": "duizendtweehonderdvijftig euro",
    "2 miljoen euro": "twee miljoen euro",
    "1,5 mln. euro": "één komma vijf miljoen euro",
    "½ liter melk": "een halve liter melk",
    "½ l en 1½ uur": "een halve liter en anderhalf uur",
    "3/4 van de mensen": "drie kwart van de mensen",
    "2 1/2 kg": "twee en een half kilogram",
    "100 m² en 5 m³": "honderd vierkante meter en vijf kubieke meter",
    "120 km/u, 30 km/h": "honderdtwintig kilometer per uur, dertig kilometer per uur",
    "10-20 dagen": "tien tot twintig dagen",
    "25% korting": "vijfentwintig procent korting",
    "-3 °C": "min drie graden Celsius",
    "1 °C": "één graad Celsius",
    "om 14:30 uur": "om veertien uur dertig",
    "om 14.00 uur": "om veertien uur",
    "bijv. appels, d.w.z. fruit enz.": "bijvoorbeeld appels, dat wil zeggen fruit enzovoort.",
    "Dr. Jansen en mevr. de Vries": "dokter Jansen en mevrouw de Vries",
    "nr. 5 op blz. 12": "nummer vijf op pagina twaalf",
    "in 1984": "in negentienhonderdvierentachtig",
    "ca. 3,14": "circa drie komma één vier",
    "o.a. melk & brood": "onder andere melk en brood",
    "Willem II betaalt € 5,-": "Willem de tweede betaalt vijf euro",
    "$ 5 en 5 £": "vijf dollar en vijf pond",
}
FRENCH = {
    "le 1er mai 2024": "le premier mai deux mille vingt-quatre",
    "le 1 mai": "le premier mai",
    "le 3 mai": "le trois mai",
    "03/05/2024": "trois mai deux mille vingt-quatre",
    "1.1.2000": "premier janvier deux mille",
    "la 3e fois, le 2ème étage": "la troisième fois, le deuxième étage",
    "la 1re place et la 1ère fois": "la première place et la première fois",
    "le 21e siècle": "le vingt et unième siècle",
    "Ça coûte 12,50 €.": "Ça coûte douze euros cinquante.",
    "1 € ou 0,50 €": "un euro ou cinquante centimes",
    "1 000 € et 12 345,67 €": "mille euros et douze mille trois cent quarante-cinq euros soixante-sept",
    "3 millions d'habitants": "trois millions d'habitants",
    "3 M€": "trois millions d'euros",
    "2 millions $": "deux millions de dollars",
    "21 livres £": "vingt et un livres livres",
    "21 £": "vingt et une livres",
    "½ l et 3/4 h": "un demi litre et trois quarts de heure",
    "2 1/2 km": "deux kilomètres et demi",
    "1½ h": "une heure et demie",
    "1/3 des gens, 2/3 des voix": "un tiers des gens, deux tiers des voix",
    "80 m² à 5 km": "quatre-vingts mètres carrés à cinq kilomètres",
    "1,5 km": "un virgule cinq kilomètre",
    "130 km/h": "cent trente kilomètres par heure",
    "10-20 jours": "dix à vingt jours",
    "25 % de remise": "vingt-cinq pour cent de remise",
    "-5 °C": "moins cinq degrés Celsius",
    "à 14h30": "à quatorze heures trente",
    "à 14 h": "à quatorze heures",
    "à 1:00": "à une heure",
    "à 21:15": "à vingt et une heures quinze",
    "M. Dupont et Mme Martin": "monsieur Dupont et madame Martin",
    "Dr Petit, etc.": "docteur Petit, et cetera.",
    "n° 5, p. 12": "numéro cinq, page douze",
    "3,14": "trois virgule quatorze",
    "1,05": "un virgule zéro cinq",
    "21 heures et 1 minute": "vingt et une heures et une minute",
    "le XXIe siècle, Louis XIV, François Ier": "le vingt et unième siècle, Louis quatorze, François premier",
    "2 000 000 €": "deux millions d'euros",
    "Tom & Léa": "Tom et Léa",
}
SPANISH = {
    "el 3 de mayo de 2024": "el tres de mayo de dos mil veinticuatro",
    "03/05/2024": "tres de mayo de dos mil veinticuatro",
    "3-5-1999": "tres de mayo de mil novecientos noventa y nueve",
    "el 3.º piso y la 2.ª planta": "el tercero piso y la segunda planta",
    "el 1.er premio, el 3er lugar": "el primer premio, el tercer lugar",
    "la 5ª vez": "la quinta vez",
    "el 2º": "el segundo",
    "Cuesta 12,50 €.": "Cuesta doce euros con cincuenta céntimos.",
    "1 € y 0,50 €": "un euro y cincuenta céntimos",
    "21 € y 21 £": "veintiún euros y veintiuna libras",
    "200 £": "doscientas libras",
    "1.234,56 €": "mil doscientos treinta y cuatro euros con cincuenta y seis céntimos",
    "$5": "cinco dólares",
    "3 millones €": "tres millones de euros",
    "1 millón de personas": "un millón de personas",
    "21.000 personas": "veintiún mil personas",
    "½ kg": "medio kilogramo",
    "½ h": "media hora",
    "2 1/2 km y 1½ h": "dos kilómetros y medio y una hora y media",
    "3/4 de los votos": "tres cuartos de los votos",
    "80 m² y 1 m": "ochenta metros cuadrados y un metro",
    "120 km/h": "ciento veinte kilómetros por hora",
    "10-20 días": "diez a veinte días",
    "25 % y 1 %": "veinticinco por ciento y uno por ciento",
    "-5 °C": "menos cinco grados Celsius",
    "a las 14:30": "a las catorce y treinta",
    "a la 1:05": "a la una y cinco",
    "a las 14:00 horas": "a las catorce horas",
    "El Sr. López y la Dra. Ruiz": "El señor López y la doctora Ruiz",
    "p. ej. Ud. en EE. UU.": "por ejemplo usted en Estados Unidos.",
    "pág. 12, n.º 5": "página doce, número cinco",
    "21 horas y 31 minutos": "veintiuna horas y treinta y un minutos",
    "3,14": "tres coma catorce",
    "el siglo XXI, Felipe VI y Luis XIV": "el siglo veintiuno, Felipe sexto y Luis catorce",
    "2 h 30 min y 1.000.000 €": "dos horas treinta minutos y un millón de euros",
    "manzanas, peras, etc. Luego": "manzanas, peras, etcétera. Luego",
}
ITALIAN = {
    "il 3 maggio 2024": "il tre maggio duemilaventiquattro",
    "il 1 maggio": "il primo maggio",
    "il 1º maggio": "il primo maggio",
    "03/05/2024": "tre maggio duemilaventiquattro",
    "01.01.1999": "primo gennaio millenovecentonovantanove",
    "il 3º posto, la 2ª volta": "il terzo posto, la seconda volta",
    "il 3° piano": "il terzo piano",
    "ci sono 25°": "ci sono venticinque gradi",
    "Costa 12,50 €.": "Costa dodici euro e cinquanta.",
    "1 € e 0,50 €": "un euro e cinquanta centesimi",
    "1 £": "una sterlina",
    "1.234 €": "milleduecentotrentaquattro euro",
    "3 milioni €": "tre milioni di euro",
    "3 mln di persone": "tre milioni di persone",
    "1.500.000": "un milione cinquecentomila",
    "½ l": "mezzo litro",
    "½ h e 1½ h": "mezza ora e una ora e mezza",
    "3/4 dei voti": "tre quarti dei voti",
    "2 1/2 kg": "due chilogrammi e mezzo",
    "80 m² e 1 m": "ottanta metri quadrati e un metro",
    "130 km/h": "centotrenta chilometri all'ora",
    "10-20 giorni": "dieci a venti giorni",
    "25% e 1%": "venticinque per cento e uno per cento",
    "-5 °C": "meno cinque gradi Celsius",
    "alle 14:30": "alle quattordici e trenta",
    "all'1:15": "all'una e quindici",
    "alle 14:00": "alle quattordici",
    "Il Sig. Rossi e la Dott.ssa Bianchi": "Il signor Rossi e la dottoressa Bianchi",
    "mele, pere, ecc. Poi": "mele, pere, eccetera. Poi",
    "pag. 12, n. 5": "pagina dodici, numero cinque",
    "3,14": "tre virgola quattordici",
    "il XXI secolo, gli anni '80": "il ventunesimo secolo, gli anni ottanta",
    "Luigi XIV": "Luigi quattordicesimo",
    "Tom & Lea": "Tom e Lea",
}
TURKISH = {
    "3 Mayıs 2024": "üç Mayıs iki bin yirmi dört",
    "03.05.2024": "üç Mayıs iki bin yirmi dört",
    "1/1/1999": "bir Ocak bin dokuz yüz doksan dokuz",
    "3. kat": "üçüncü kat",
    "2. Dünya Savaşı": "ikinci Dünya Savaşı",
    "5'inci sınıf": "beşinci sınıf",
    "20'nci yüzyıl": "yirminci yüzyıl",
    "12,50 TL": "on iki lira elli kuruş",
    "₺100 ve 1 €": "yüz lira ve bir avro",
    "0,50 ₺": "elli kuruş",
    "1.250.000 TL": "bir milyon iki yüz elli bin lira",
    "3 milyon dolar": "üç milyon dolar",
    "3 milyon $": "üç milyon dolar",
    "%20 indirim": "yüzde yirmi indirim",
    "20% indirim": "yüzde yirmi indirim",
    "½ litre": "yarım litre",
    "½ kg": "yarım kilogram",
    "2 1/2 saat": "iki buçuk saat",
    "3/4": "dörtte üç",
    "80 m²": "seksen metrekare",
    "120 km/sa": "saatte yüz yirmi kilometre",
    "10-20 gün": "on ile yirmi gün",
    "-5 °C": "eksi beş santigrat derece",
    "saat 14:30": "saat on dört otuz",
    "saat 9:00": "saat dokuz",
    "Dr. Ahmet Yılmaz": "doktor Ahmet Yılmaz",
    "elma, armut vb. meyveler": "elma, armut ve benzeri meyveler",
    "bkz. s. 12, No. 5": "bakınız sayfa on iki, numara beş",
    "3,14": "üç virgül on dört",
    "2024'te 1.000 kişi": "iki bin yirmi dört'te bin kişi",
    "Sayı 3. Sonra geldi.": "Sayı üç. Sonra geldi.",
    "II. Abdülhamid": "ikinci Abdülhamid",
    "100.000": "yüz bin",
}
ARABIC = {
    "3 مايو 2024": "الثالث من مايو ألفان وأربعة وعشرون",
    "25/12/1999": "الخامس والعشرون من ديسمبر ألف وتسعمئة وتسعة وتسعون",
    "2024-05-03": "الثالث من مايو ألفان وأربعة وعشرون",
    "1 كم": "كيلومتر واحد",
    "2 كم": "كيلومتران",
    "5 كم": "خمسة كيلومترات",
    "11 كم": "أحد عشر كيلومترا",
    "25 كم": "خمسة وعشرون كيلومترا",
    "100 كم": "مئة كيلومتر",
    "200 كم": "مئتا كيلومتر",
    "103 كم": "مئة وثلاثة كيلومترات",
    "3 ساعة و 2 ساعات": "ثلاث ساعات و ساعتان",
    "12 ساعة": "اثنتا عشرة ساعة",
    "5 $": "خمسة دولارات",
    "12.50 $": "اثنا عشر دولارا وخمسون سنتا",
    "100 €": "مئة يورو",
    "1,000,000": "مليون",
    "3 ملايين $": "ثلاثة ملايين دولار",
    "٢٠٪": "عشرون بالمئة",
    "%50": "خمسون بالمئة",
    "٣٫٥": "ثلاثة فاصلة خمسة",
    "الساعة 3:30": "الساعة الثالثة والنصف",
    "الساعة 10:15": "الساعة العاشرة والربع",
    "7:05": "الساعة السابعة وخمس دقائق",
    "½": "نصف",
    "3/4": "ثلاثة أرباع",
    "2/3": "ثلثان",
    "80 م²": "ثمانون مترا مربعا",
    "10-20": "عشرة إلى عشرون",
    "-5 °C": "سالب خمس درجات مئوية",
    "د. أحمد": "دكتور أحمد",
    "تفاح وموز إلخ": "تفاح وموز إلى آخره",
    "ص 12": "صفحة اثنا عشر",
    "القرن 21": "القرن الحادي والعشرون",
    "2 مليون دولار": "مليونا دولار",
    "1984": "ألف وتسعمئة وأربعة وثمانون",
    "2000": "ألفان",
    "21000": "واحد وعشرون ألفا",
}
TABLES = {"de": GERMAN, "nl": DUTCH, "fr": FRENCH, "es": SPANISH, "it": ITALIAN, "tr": TURKISH, "ar": ARABIC}
SENTENCES = [(language, *pair) for language, table in TABLES.items() for pair in table.items()]


WRITTEN = [
    *"1 2 12 1,5 1.000 3/4 ½ 14:30 3.5.2024 0 . , - – ( % € $ ° ² / : ' Wort ABC x كلمة".split(),
    *[" "] * 12,
]


def list_pieces(language: str) -> list[str]:
    table = load_table(language)
    names = ("units", "currencies", "scales", "abbreviations", "before_number", "ordinal_marks")
    return [*WRITTEN, *(key for name in names for key in split_keys(table[name])), *table["months"].split()]


def test_every_language_with_a_table_of_words_has_sentences() -> None:
    assert set(TABLES) == set(TABLE_LANGUAGES)
    assert min(map(len, TABLES.values())) >= 25


@pytest.mark.parametrize(("language", "written", "spoken"), SENTENCES)
def test_a_sentence_is_said(language: str, written: str, spoken: str) -> None:
    assert normalize_text(written, language) == spoken
    assert normalize_text(spoken, language) == spoken


@pytest.mark.parametrize("language", TABLE_LANGUAGES)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_spoken_text_is_left_as_it_is_and_has_no_figures(language: str, data: st.DataObject) -> None:
    text = "".join(data.draw(st.lists(st.sampled_from(list_pieces(language)), max_size=10)))
    spoken = normalize_text(text, language)
    assert not any(char.isdecimal() or char in "²³½%€$" for char in spoken)
    assert normalize_text(spoken, language) == spoken


@pytest.mark.parametrize("language", TABLE_LANGUAGES)
def test_every_unit_currency_and_scale_can_be_counted(language: str) -> None:
    table = load_table(language)
    for name in ("units", "currencies", "scales"):
        for sign in split_keys(table[name]):
            for number in ("0", "1", "2", "5", "11", "21", "100", "1" + table_decimal(language) + "5", "9" * 20):
                spoken = normalize_text(f"{number} {sign}", language)
                assert "{" not in spoken


def table_decimal(language: str) -> str:
    return "." if language == "ar" else ","


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("de", "Das ist z. B. Dr. Müller. Er kam am 3. Mai.", ["Das ist z. B. Dr. Müller.", "Er kam am 3. Mai."]),
        ("de", "Äpfel usw. Dann ging er.", ["Äpfel usw.", "Dann ging er."]),
        ("fr", "M. Dupont arrive. Il part.", ["M. Dupont arrive.", "Il part."]),
        ("es", "El Sr. López llegó. Se fue.", ["El Sr. López llegó.", "Se fue."]),
        ("it", "Il Sig. Rossi arriva. Poi va.", ["Il Sig. Rossi arriva.", "Poi va."]),
        ("nl", "Dhr. Jansen komt. Hij gaat.", ["Dhr. Jansen komt.", "Hij gaat."]),
        ("tr", "Dr. Ahmet geldi. Sonra gitti.", ["Dr. Ahmet geldi.", "Sonra gitti."]),
        ("ar", "جاء د. أحمد. ثم ذهب.", ["جاء د. أحمد.", "ثم ذهب."]),
    ],
)
def test_abbreviations_end_no_sentence(language: str, text: str, sentences: list[str]) -> None:
    assert split_sentences(text, language) == sentences
