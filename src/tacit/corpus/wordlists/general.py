"""The public corpus's grammar: plain-language health education and everyday prose.

It shares the function words and a part of the medical words with the private grammar, and none of its abbreviations.
"""

from __future__ import annotations

__all__ = ["EVERYDAY_GRAMMAR", "EVERYDAY_TOPICS", "HEALTH_GRAMMAR", "HEALTH_TOPICS"]

# What a topic gives to the grammar. A template that needs two different signs asks for {sign} and {sign_b}: the
# generator deals every list out between the two.
HEALTH_TOPICS: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "illness": ("high blood pressure", "hypertension"),
        "organ": ("heart", "blood vessels", "kidneys"),
        "sign": ("headache", "dizziness", "blurry vision", "chest pain"),
        "cause": ("too much salt", "stress", "a family history", "smoking"),
        "care": ("blood pressure tablets", "less salt", "regular walks", "home readings"),
    },
    {
        "illness": ("diabetes", "type 2 diabetes", "high blood sugar"),
        "organ": ("pancreas", "eyes", "feet", "kidneys"),
        "sign": ("thirst", "frequent urination", "fatigue", "slow healing of wounds"),
        "cause": ("excess weight", "too little exercise", "a family history"),
        "care": ("insulin", "a balanced diet", "blood sugar checks", "regular exercise"),
    },
    {
        "illness": ("heart failure", "heart disease"),
        "organ": ("heart", "lungs", "blood vessels"),
        "sign": ("shortness of breath", "leg swelling", "weight gain", "chest pressure"),
        "cause": ("high blood pressure", "high cholesterol", "smoking", "age"),
        "care": ("water tablets", "a low salt diet", "daily weights", "aspirin"),
    },
    {
        "illness": ("asthma", "lung disease"),
        "organ": ("lungs", "airways", "chest"),
        "sign": ("wheezing", "dry cough", "chest tightness", "shortness of breath"),
        "cause": ("pollen", "cold air", "smoke", "dust"),
        "care": ("an inhaler", "an asthma action plan", "steroid tablets", "clean air at home"),
    },
    {
        "illness": ("depression", "low mood"),
        "organ": ("brain", "body"),
        "sign": ("poor sleep", "loss of appetite", "fatigue", "poor concentration"),
        "cause": ("grief", "stress", "long illness", "loneliness"),
        "care": ("talking therapy", "regular exercise", "medication", "support from family"),
    },
    {
        "illness": ("anxiety", "panic attacks"),
        "organ": ("brain", "heart"),
        "sign": ("excessive worry", "palpitations", "restlessness", "tense muscles"),
        "cause": ("stress", "too much coffee", "past events", "lack of sleep"),
        "care": ("breathing exercises", "talking therapy", "regular sleep", "medication"),
    },
    {
        "illness": ("pneumonia", "the flu", "a chest infection"),
        "organ": ("lungs", "throat", "chest"),
        "sign": ("fever", "cough", "chills", "body aches"),
        "cause": ("a virus", "bacteria", "a weak immune system"),
        "care": ("antibiotics", "rest", "plenty of fluids", "a yearly vaccine"),
    },
    {
        "illness": ("arthritis", "gout", "joint pain"),
        "organ": ("knee", "hands", "hip", "great toe"),
        "sign": ("morning stiffness", "swelling", "pain with stairs", "warm skin"),
        "cause": ("age", "old injuries", "excess weight", "rich food"),
        "care": ("gentle exercise", "pain relief tablets", "weight loss", "warm baths"),
    },
    {
        "illness": ("migraine", "headaches"),
        "organ": ("head", "brain", "neck"),
        "sign": ("nausea", "throbbing headache", "sensitivity to light"),
        "cause": ("lack of sleep", "stress", "skipped meals", "bright light"),
        "care": ("rest in a dark room", "a headache diary", "regular meals", "pain relief tablets"),
    },
    {
        "illness": ("kidney disease", "a urinary tract infection"),
        "organ": ("kidneys", "bladder"),
        "sign": ("pain when passing urine", "fever", "back pain", "swelling of the ankles"),
        "cause": ("diabetes", "high blood pressure", "bacteria", "too little water"),
        "care": ("antibiotics", "plenty of water", "blood tests", "a special diet"),
    },
    {
        "illness": ("anemia", "low iron"),
        "organ": ("blood", "bones", "heart"),
        "sign": ("fatigue", "pale skin", "dizziness", "cold hands"),
        "cause": ("too little iron in the diet", "blood loss", "pregnancy"),
        "care": ("iron tablets", "green vegetables", "red meat", "blood tests"),
    },
    {
        "illness": ("stroke", "a blood clot"),
        "organ": ("brain", "legs", "arteries"),
        "sign": ("slurred speech", "weakness on one side", "leg swelling", "sudden confusion"),
        "cause": ("smoking", "long journeys", "high blood pressure", "high cholesterol"),
        "care": ("urgent treatment", "blood thinners", "therapy", "compression stockings"),
    },
)

HEALTH_GRAMMAR: dict[str, tuple[str, ...]] = {
    "record": (
        "{define} {signs} {causes} {advice}",
        "{question} {define} {signs} {advice} {close}",
        "{signs} {causes} {advice} {advice}",
        "{define} {story} {advice} {close}",
    ),
    "question": ("What is {illness}?", "Who is at risk of {illness}?", "How is {illness} treated?"),
    "define": (
        "{Illness} is a condition that affects the {organ}.",
        "When a person has {illness}, the {organ} cannot work as well as before.",
        "Doctors use the name {illness} when there is a problem with the {organ}.",
        "{Illness} is common, and {many} of adults will have it at some point in life.",
    ),
    "many": ("one in ten", "about a third", "nearly half", "a small number"),
    "signs": (
        "The most common symptoms are {sign} and {sign_b}.",
        "Some people notice {sign} first, while others have no symptoms for years.",
        "Signs of {illness} may include {sign} or {sign_b}.",
        "Tell your doctor if {sign} lasts for more than {two|three|four} weeks.",
    ),
    "causes": (
        "It is often caused by {cause}, but {cause_b} can also play a part.",
        "Experts think that {cause} makes {illness} more likely.",
        "The risk is higher for people with {cause}.",
        "Nobody knows exactly why it starts, although {cause} seems to matter.",
    ),
    "advice": (
        "Treatment usually begins with {care}.",
        "Your doctor or nurse may suggest {care} and {care_b}.",
        "{Many} people find that {care} helps them to feel better.",
        "Do not stop {care} without asking your doctor or pharmacist.",
        "Along with {care}, it is important to {habit}.",
    ),
    "Many": ("Many", "Most", "Some", "A few"),
    "habit": ("sleep well", "eat more fruit", "keep active", "stop smoking", "drink enough water", "see your doctor"),
    "story": (
        "Last year my {relative} was told that she had {illness}, and at first she was worried.",
        "A {worker} in our town learned to live with {illness} after a visit to the clinic.",
    ),
    "relative": ("mother", "aunt", "neighbour", "sister", "grandmother"),
    "worker": ("teacher", "baker", "bus driver", "farmer", "librarian"),
    "close": (
        "Ask for help early.",
        "With good care most people live a full life.",
        "This page is for information only and does not replace advice from your own doctor.",
        "You can find more leaflets at your local library or clinic.",
    ),
}

EVERYDAY_TOPICS: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "thing": ("soup", "bread", "rice", "garlic", "onions", "tomato sauce", "butter"),
        "tool": ("pan", "oven", "wooden spoon", "bowl", "sharp knife"),
        "place": ("kitchen", "market", "bakery"),
        "act": ("bake", "chop", "stir", "taste", "cook"),
        "quality": ("fresh", "hot", "sweet", "salty", "crisp"),
    },
    {
        "thing": ("roses", "beans", "seeds", "apple trees", "weeds", "compost", "carrots"),
        "tool": ("spade", "watering can", "rake", "wheelbarrow"),
        "place": ("garden", "greenhouse", "back yard"),
        "act": ("plant", "water", "dig", "prune", "pick"),
        "quality": ("green", "tall", "ripe", "wet", "early"),
    },
    {
        "thing": ("tickets", "suitcases", "maps", "postcards", "trains", "old bridges"),
        "tool": ("camera", "guide book", "rucksack", "passport"),
        "place": ("station", "harbour", "mountain village", "airport"),
        "act": ("pack", "book", "explore", "visit", "photograph"),
        "quality": ("crowded", "quiet", "cheap", "distant", "beautiful"),
    },
    {
        "thing": ("books", "lessons", "exams", "poems", "maths problems", "stories"),
        "tool": ("pencil", "notebook", "blackboard", "computer"),
        "place": ("school", "library", "classroom"),
        "act": ("read", "write", "study", "explain", "borrow"),
        "quality": ("long", "difficult", "clever", "funny", "new"),
    },
    {
        "thing": ("chairs", "windows", "shelves", "doors", "pipes", "old tables"),
        "tool": ("hammer", "ladder", "paint brush", "saw", "drill"),
        "place": ("workshop", "garage", "attic"),
        "act": ("repair", "paint", "measure", "sand", "build"),
        "quality": ("wooden", "broken", "heavy", "rusty", "smooth"),
    },
    {
        "thing": ("songs", "concerts", "guitars", "choirs", "records", "dances"),
        "tool": ("piano", "violin", "microphone", "drum"),
        "place": ("theatre", "church hall", "park"),
        "act": ("sing", "practise", "play", "record", "perform"),
        "quality": ("loud", "gentle", "famous", "slow", "cheerful"),
    },
    {
        "thing": ("football matches", "races", "bicycles", "swimming lessons", "teams"),
        "tool": ("ball", "helmet", "whistle", "bicycle pump"),
        "place": ("stadium", "swimming pool", "sports field"),
        "act": ("run", "train", "win", "watch", "kick"),
        "quality": ("fast", "tired", "young", "strong", "exciting"),
    },
    {
        "thing": ("clouds", "storms", "snow", "spring flowers", "rivers", "birds"),
        "tool": ("umbrella", "warm coat", "telescope", "torch"),
        "place": ("forest", "beach", "valley", "lake"),
        "act": ("walk", "watch", "follow", "draw", "swim"),
        "quality": ("cold", "bright", "windy", "grey", "wild"),
    },
    {
        "thing": ("bills", "letters", "prices", "savings", "shops", "parcels"),
        "tool": ("calculator", "bank card", "telephone", "shopping list"),
        "place": ("bank", "post office", "town hall", "supermarket"),
        "act": ("pay", "count", "send", "sell", "save"),
        "quality": ("expensive", "careful", "late", "useful", "local"),
    },
    {
        "thing": ("dogs", "kittens", "sheep", "horses", "hens", "fish"),
        "tool": ("basket", "brush", "lead", "bucket"),
        "place": ("farm", "stable", "barn"),
        "act": ("feed", "train", "brush", "count", "catch"),
        "quality": ("friendly", "noisy", "small", "hungry", "brown"),
    },
)

EVERYDAY_GRAMMAR: dict[str, tuple[str, ...]] = {
    "record": (
        "{scene} {action} {detail} {outcome}",
        "{opinion} {action} {detail} {detail}",
        "{scene} {detail} {speech} {outcome}",
        "{opinion} {scene} {action} {speech}",
    ),
    "scene": (
        "In the {place} there was a {quality} smell and a great deal of noise.",
        "On {day} {person} went to the {place} to {act} the {thing}.",
        "The {place} opens at {six|seven|eight|nine} and closes before dark.",
        "It was a {quality} {season} and nobody wanted to stay at home.",
    ),
    "action": (
        "{Person} used a {tool} to {act} the {thing}, and it took about {twenty|thirty|forty} minutes.",
        "They had to {act} and then {act_b} everything again because the {thing} were too {quality}.",
        "With a good {tool} anyone can learn to {act} in {two|three|four} weeks.",
        "She put the {tool} next to the {thing_b} and began to {act}.",
    ),
    "detail": (
        "The {thing} were {quality} and rather {quality_b}.",
        "Nothing in the {place} is as {quality} as the {thing}.",
        "He had bought the {tool} from a friend for very little money.",
        "There are more {thing} this year than last year.",
    ),
    "opinion": (
        "Most people who like {thing} also like to {act_b}.",
        "I think that every {place} should have a {tool_b}.",
        "My father says that {quality_b} {thing} are the best in the world.",
    ),
    "speech": (
        '"We should {act} the {thing} tomorrow," said {person}.',
        "{Person} asked whether the {tool} was still in the {place}.",
    ),
    "outcome": (
        "In the end everybody was happy.",
        "By {day} the {thing} had gone and the {place} was quiet again.",
        "It rained, so they came home and drank a cup of tea.",
        "That was the last time {person} saw the {tool}.",
    ),
    "person": ("my brother", "the children", "our neighbour", "a friend", "the old man", "her daughter"),
    "Person": ("My brother", "The children", "Our neighbour", "A friend", "The old man", "Her daughter"),
    "day": ("Saturday", "Monday", "Sunday", "Friday", "Wednesday"),
    "season": ("summer", "winter", "autumn", "spring"),
}
