"""English sentences of daily life: questions, lists and numbers, with every sound of the language."""

from __future__ import annotations

from myxtts.corpus.demo.grammar import Grammar

_TEMPLATES = (
    "{who} took the {vehicle} to {town} {past}, and {came_back}.",
    "{who} bought {count} {goods}, {count2} {goods2} and {a_thing} at the market {past}.",
    "Could you tell me {asked}?",
    "Why did {who} leave {the_object} {where} {past}?",
    "If the weather stays {weather}, we will {plan} {future}.",
    "The train to {town} leaves at {clock} from platform {platform}, so {hurry}.",
    "Have you ever {experience}, or would this be the first time?",
    "A {animal} {animal_did} {outdoors} while {who} {was_doing}.",
    "{crowd} people {crowd_did} in {town}, although it was {weather} and {weather2}.",
    "My {relative} always says that {saying}.",
    "Please put {the_object}, {the_object2} and {the_object3} {where} before {clock}.",
    "What {a_sight}; {reaction}!",
    "In {year}, {role} {founded} in {town}, and {today}.",
    "It takes about {minutes} minutes to {task}, but {caveat}.",
    "Would you like {drink} or {drink2} with your {meal}?",
    "First {step}, then {step2}, and finally {step3}.",
    "{role} {beside} {did} {past}.",
    "Page {page} of the {book} explains how to {task}.",
    "The temperature will rise to {degrees} degrees {future}, so {advice}.",
    '{who} whispered, "{quote}," and {quietly_did}.',
    "There are {count} {painted} on the {surface}: {color}, {color2} and {color3} ones.",
    "I wonder whether {who} will {plan} {future}; {doubt}.",
    "Neither {name} nor {name2} could remember {memory}.",
    "Turn left at the {building}, walk {metres} metres, and you will see {sight} on your right.",
    "According to the {source}, {news} {past}.",
    "Thank you for {favour}; {thanks}.",
    "Excuse me, is this the way to the {building}, or should I {other_way}?",
    "{name} measured {count} spoons of {ingredient}, added {ingredient2}, and stirred {manner}.",
    "The {vehicle} was {minutes} minutes late, so {consequence}.",
    "How many {goods} do we need for {occasion}: {few}, {many}, or even more?",
    "{who} {was_doing} when {surprise}.",
    "Nothing is as {pleasant} as {pleasure} {when}.",
    "No, {refusal}.",
    "{name}, {name2} and {name3} shared {shared} {past}.",
    "Who {did} {past}, {role} or {role2}?",
    "The {view} near {town} looks {adjective} and {adjective2} {when}.",
)

_WORDS = {
    "name": (
        "Alice", "Benjamin", "Charlotte", "David", "Emma", "George", "Hannah", "Joyce", "Julia", "Leo", "Maya", "Noah",
        "Olivia", "Peter", "Ruth", "Sarah", "Theo", "Violet", "Walter", "Yusuf", "Zoe",
    ),
    "who": ("{name}", "{name}", "{role}", "my {relative}", "our {relative}"),
    "role": (
        "the baker", "the young doctor", "our geography teacher", "the old fisherman", "a nurse", "the bus driver",
        "the choir leader", "a tall stranger", "the chess champion", "the painter", "a curious journalist",
        "the village judge", "the watchmaker", "an honest lawyer", "the new engineer", "a retired pilot",
    ),
    "relative": ("brother", "sister", "uncle", "cousin", "grandfather", "grandmother", "nephew", "father", "mother"),
    "town": (
        "Oxford", "Chicago", "Geneva", "Shiraz", "Vienna", "Boston", "Zanzibar", "Lisbon", "Warsaw", "Edinburgh",
        "Youngstown", "Portsmouth", "Kyoto", "Cairo", "Bruges", "Helsinki", "Plymouth", "Isfahan",
    ),
    "vehicle": ("night train", "early bus", "small plane", "coach", "express", "afternoon train", "new railcar"),
    "past": (
        "yesterday morning", "last Thursday", "a fortnight ago", "on the fifth of July", "early this week",
        "three years ago", "last winter", "on Wednesday evening", "just before noon", "in the middle of the night",
    ),
    "future": (
        "tomorrow", "next weekend", "this afternoon", "on Tuesday", "before the end of August", "at sunrise",
        "within an hour", "in two weeks",
    ),
    "when": ("in the spring", "after a long journey", "at dusk", "on a cold morning", "under a full moon", "at midday"),
    "came_back": (
        "came back with a suitcase full of books", "returned before anybody had noticed", "missed the way home",
        "enjoyed every minute of it", "slept through the whole journey", "stayed there for nine days",
    ),
    "count": ("two", "three", "four", "six", "seven", "nine", "eleven", "12", "15", "18", "24"),
    "few": ("5", "8", "ten"),
    "many": ("twenty", "35", "forty", "60"),
    "crowd": ("Twelve", "About forty", "More than 300", "Nearly a thousand", "Only seven", "At least 85"),
    "minutes": ("5", "ten", "15", "twenty", "25", "35", "forty", "45", "90"),
    "metres": ("50", "80", "one hundred", "150", "200", "300"),
    "degrees": ("19", "twenty", "23", "28", "thirty", "31"),
    "platform": ("one", "2", "three", "5", "eight", "11"),
    "page": ("9", "17", "42", "63", "118", "205"),
    "year": ("1843", "1895", "1912", "1937", "1956", "1968", "1979", "1990", "2004", "2015"),
    "clock": ("half past six", "7:15", "nine o'clock", "8:30", "noon", "a quarter to five", "10:45", "11:20"),
    "goods": (
        "oranges", "brushes", "envelopes", "candles", "jars", "peaches", "cushions", "watches", "eggs", "blankets",
        "postcards", "glasses", "mushrooms", "onions", "boxes",
    ),
    "painted": ("brushes", "envelopes", "candles", "jars", "cushions", "blankets", "boxes", "balloons", "ribbons"),
    "a_thing": (
        "a leather purse", "an old azure vase", "a wooden chair", "a pound of cheese", "an umbrella",
        "a bottle of olive oil", "a treasure map", "a pair of gloves", "a bunch of thyme",
    ),
    "asked": (
        "where the nearest pharmacy is", "how long the lecture usually lasts", "which road leads to {town}",
        "when the museum opens {future}", "whether the soup contains fish", "who wrote this beautiful letter",
        "what the young man at the door wanted", "why the lights went out {past}",
        "how much the blue jacket costs", "whose luggage this is",
    ),
    "the_object": (
        "the keys", "the yellow folder", "the measuring tape", "the toolbox", "the birthday present", "the radio",
        "the silver spoons", "the thick dictionary", "the garage key", "the travel guide", "the violin",
    ),
    "where": (
        "on the kitchen shelf", "behind the garden shed", "under the oak tree", "beside the fountain", "in the hallway",
        "near the lighthouse", "at the edge of the forest", "next to the window", "in the back yard",
    ),
    "outdoors": (
        "behind the garden shed", "under the oak tree", "beside the fountain", "near the lighthouse",
        "at the edge of the forest", "in the back yard", "by the river", "between two hedges",
    ),
    "weather": ("mild", "dry", "windy", "foggy", "unusually warm", "cloudy", "cool", "stormy", "bright"),
    "plan": (
        "climb the hill behind the village", "have a picnic by the lake", "paint the garden fence",
        "visit the science museum", "go fishing with the children", "plant a row of cherry trees",
        "cycle along the canal", "watch the fireworks from the bridge", "finish the jigsaw puzzle",
    ),
    "hurry": (
        "there is no need to rush", "we should pack tonight", "please wake me early", "let us call a taxi now",
        "don't be late again", "you still have time for breakfast",
    ),
    "experience": (
        "seen a shooting star", "tasted fresh figs", "ridden a camel", "baked your own bread", "slept in a tent",
        "heard a nightingale", "lost your passport abroad", "flown in a hot air balloon", "fixed a broken clock",
    ),
    "animal": ("fox", "grey horse", "pigeon", "young goat", "tortoise", "hedgehog", "swan", "sheepdog", "squirrel"),
    "animal_did": (
        "waited patiently", "drank some water", "hid from the rain", "found a piece of bread", "fell asleep",
        "made a strange noise", "chased its own shadow",
    ),
    "was_doing": (
        "was reading the newspaper", "was washing the dishes", "was writing a thank you note", "was fixing the engine",
        "was singing in the shower", "was choosing a new wallpaper", "was peeling potatoes", "was feeding the chickens",
    ),
    "crowd_did": (
        "gathered for the concert", "queued for hours", "cheered for the runners", "signed the petition",
        "joined the parade", "watched the eclipse", "danced in the square",
    ),
    "saying": (
        "patience is a good teacher", "a short walk clears the mind", "every cloud has a silver lining",
        "you should measure twice and cut once", "good soup needs time", "a joke is better than a judge",
        "those who ask questions never lose their way", "the early bird catches the worm",
    ),
    "adjective": ("peaceful", "gorgeous", "unusual", "charming", "mysterious", "quiet", "lonely", "wild"),
    "view": ("valley", "orchard", "waterfall", "mountain path", "vineyard", "stone bridge", "meadow", "river bank"),
    "a_sight": (
        "a gorgeous sunset", "an unusual garden", "a charming little harbour", "a vast and quiet beach",
        "a lovely piece of music", "a huge crowd", "an enormous cake", "a joyful noise", "a wonderful voyage",
    ),
    "pleasant": ("soothing", "cheerful", "refreshing", "comforting", "precious", "delightful"),
    "reaction": (
        "I could stay here forever", "you must take a picture", "we should come back in autumn",
        "nobody told us about it", "even the children went silent", "it was worth the climb",
    ),
    "founded": (
        "opened a tiny bookshop", "built the first theatre", "started a music school", "founded a chess club",
        "planted a public garden", "printed the first newspaper", "designed the railway station",
    ),
    "today": (
        "it is known all over the country", "thousands of visitors come every year", "it still smells of fresh paint",
        "only the front wall is left", "their grandchildren look after it", "the whole street is named after it",
    ),
    "task": (
        "boil the rice", "sharpen the kitchen knives", "fold a paper ship", "clean the chimney", "tie a proper knot",
        "repair a flat tyre", "iron two shirts", "polish the shoes", "wash all the windows",
    ),
    "caveat": (
        "it is worth the trouble", "you need both hands", "nobody minds if you are slower",
        "the second time is much easier", "I usually listen to the radio meanwhile", "the result depends on the tools",
    ),
    "drink": ("black tea", "orange juice", "hot chocolate", "coffee with milk", "mint tea", "lemonade", "cold water"),
    "meal": ("breakfast", "sandwich", "vegetable soup", "piece of cake", "fish and chips", "lamb stew"),
    "step": (
        "wash the vegetables", "heat the oven", "chop the garlic", "beat the eggs", "slice the bread thinly",
        "grate the cheese", "squeeze two lemons", "rinse the beans", "set the table", "crush the walnuts",
    ),
    "beside": ("from {town}", "with the green scarf", "across the street", "on the third floor", "beside the pharmacy"),
    "did": (
        "won a prize for the best roses", "repaired the church bell", "found a purse full of coins",
        "gave a speech about birds", "taught us an old song", "invited the whole neighbourhood to lunch",
        "wrote a letter to the mayor", "rescued a puppy from the river",
    ),
    "book": ("handbook", "old manual", "gardening guide", "cookery book", "new edition", "children's encyclopaedia"),
    "advice": (
        "take a hat with you", "drink plenty of water", "leave the thick coat at home", "open the windows early",
        "water the plants twice", "wear something light",
    ),
    "quote": (
        "don't wake the baby", "the treasure must be here", "I think we are lost", "follow me",
        "this is our last chance", "please keep this between us", "look at those footprints",
    ),
    "quietly_did": (
        "closed the door", "pointed at the stairs", "switched off the lamp", "smiled", "handed over the letter",
        "vanished into the fog", "put a finger to the lips",
    ),
    "surface": ("table", "counter", "lower shelf", "bench", "tray", "carpet"),
    "color": ("red", "yellow", "purple", "green", "white", "orange", "black", "beige", "violet"),
    "doubt": (
        "it would be the first time", "I would not bet on it", "everything depends on the weather",
        "the others have already agreed", "we shall know soon enough", "there is so little time",
    ),
    "memory": (
        "where the car was parked", "who had paid for the meal", "the name of the hotel", "how the story ended",
        "what the password was", "the year of the great flood", "the words of the second verse",
    ),
    "building": ("post office", "town hall", "library", "cinema", "railway station", "swimming pool", "cathedral"),
    "sight": (
        "a small fountain", "the entrance of the zoo", "a bakery with a blue door", "three flags", "an iron bridge",
        "the oldest house in {town}", "a statue of a horse",
    ),
    "source": ("evening news", "weather report", "radio", "local newspaper", "mayor's office", "latest survey"),
    "news": (
        "the river rose by two metres", "a new bridge was opened", "the price of bread fell",
        "thieves stole a famous painting", "the school choir won the contest", "an earthquake shook the island",
        "the museum received a generous gift",
    ),
    "favour": (
        "watering my plants", "lending me your bicycle", "the lovely flowers", "helping us move", "your kind letter",
        "waiting so long", "the delicious lunch",
    ),
    "thanks": (
        "I owe you a cup of coffee", "it meant a great deal to us", "you really saved the day",
        "the children were overjoyed", "we could not have managed alone", "next time it is my turn",
    ),
    "other_way": ("cross the bridge first", "take the number 9 bus", "go back to the crossroads", "ask somebody else"),
    "ingredient": ("sugar", "flour", "honey", "cocoa", "ginger", "yoghurt", "butter", "rice vinegar", "chopped nuts"),
    "manner": ("slowly", "for a while", "until it was smooth", "with a wooden spoon", "without a pause"),
    "consequence": (
        "we played cards in the waiting room", "the meeting began without us", "the soup was cold",
        "{who} had to take a taxi", "I read two more chapters", "everybody was rather annoyed",
    ),
    "occasion": ("the wedding", "Sunday's party", "the school trip", "the whole team", "a week in the mountains"),
    "surprise": (
        "the telephone rang", "a bird flew in through the window", "the power failed", "somebody knocked at the door",
        "the dog began to bark", "it started to hail", "{role} arrived with a huge parcel",
    ),
    "pleasure": (
        "a cup of tea", "the smell of fresh bread", "a warm fire", "an hour of silence", "the voice of an old friend",
        "a swim in the sea",
    ),
    "refusal": (
        "that is not my coat; mine is the {color} one with the long sleeves",
        "the shop isn't closed; just push the door gently",
        "I have never been to {town}; you must be thinking of my {relative}",
        "this is not the usual price; it was changed {past}",
        "we are not angry at all; there has been a mistake",
        "the show does not begin at {clock}; please look again",
        "{who} is not at home; try again {future}",
    ),
    "shared": ("a large pizza", "the cost of the trip", "one umbrella", "a bowl of cherries", "the housework"),
}  # fmt: skip

ENGLISH = Grammar(_TEMPLATES, _WORDS)
