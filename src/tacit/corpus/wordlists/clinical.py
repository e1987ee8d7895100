"""The private corpus's grammar: conditions with what goes with each, and the sections of a note.

Invented for tests and demonstrations: plausible enough for a language model to learn from, and no medical advice.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CANARY_SENTENCES", "CONDITIONS", "NOTE_GRAMMAR", "Condition"]


@dataclass(frozen=True, slots=True)
class Condition:
    """A diagnosis and what it brings with it; templates are in the notation of the package's docstring.

    Args:
        name: written out, lower case.
        short: the clinician's abbreviation.
        ages: youngest and oldest patient.
        symptoms, findings, labs, drugs, plans: templates, the commoner first.
        often_with: ``short`` of the conditions that come along.
        sexes: whom it affects.
    """

    name: str
    short: str
    ages: tuple[int, int]
    symptoms: tuple[str, ...]
    findings: tuple[str, ...]
    labs: tuple[str, ...]
    drugs: tuple[str, ...]
    plans: tuple[str, ...]
    often_with: tuple[str, ...]
    sexes: str = "fm"


# Commoner conditions first: the generator draws from the head of the list more often.
CONDITIONS = (
    Condition(
        "essential hypertension", "HTN", (35, 88),
        ("occipital headache", "intermittent lightheadedness", "elevated home BP readings",
         "epistaxis", "blurry vision"),
        ("BP {148-186}/{88-108}", "S4 gallop", "AV nicking on funduscopy", "no carotid bruits"),
        ("BMP wnl", "urine microalbumin {12-88} mg/g", "EKG with LVH by voltage"),
        ("lisinopril {10|20|40} mg PO daily", "amlodipine {5|10} mg PO daily", "HCTZ {12.5|25} mg PO qAM"),
        ("uptitrate lisinopril and recheck BMP in two weeks", "keep home BP log", "low sodium DASH diet"),
        ("T2DM", "CKD", "CAD", "CVA"),
    ),
    Condition(
        "type 2 diabetes mellitus", "T2DM", (34, 84),
        ("polyuria", "polydipsia", "bilateral foot paresthesias", "fasting sugars in the {180-260}s", "nocturia"),
        ("diminished monofilament sensation", "acanthosis nigricans", "pedal pulses 2+ bilaterally"),
        ("HbA1c {7.4-11.2}%", "FSBG {168-310}", "urine ACR {30-210} mg/g"),
        ("metformin {500|850|1000} mg PO BID", "insulin glargine {10-38} units SQ qHS",
         "empagliflozin {10|25} mg PO daily"),
        ("titrate glargine by two units every three days", "repeat HbA1c in three months",
         "refer to diabetic eye exam"),
        ("HTN", "CKD", "CAD", "OSA"),
    ),
    Condition(
        "gastroesophageal reflux disease", "GERD", (24, 80),
        ("substernal burning after meals", "regurgitation", "globus sensation",
         "nocturnal cough", "dysphagia to solids"),
        ("mild epigastric tenderness", "abdomen soft, NABS", "no rebound or guarding"),
        ("H. pylori stool antigen negative", "EGD with LA grade {A|B|C} esophagitis"),
        ("omeprazole {20|40} mg PO qAM", "famotidine {20|40} mg PO qHS", "sucralfate 1 g PO QID"),
        ("continue PPI for eight weeks then taper", "elevate head of bed", "GI referral for EGD"),
        ("OSA", "MDD", "asthma"),
    ),
    Condition(
        "chronic obstructive pulmonary disease", "COPD", (48, 86),
        ("dyspnea on exertion", "productive cough with purulent sputum", "increased wheezing", "chest tightness"),
        ("diffuse expiratory wheezes", "prolonged expiratory phase", "barrel chest", "SpO2 {86-92}% on RA"),
        ("FEV1 {32-58}% predicted", "ABG with pCO2 {46-62}", "CXR hyperinflated without infiltrate"),
        ("tiotropium 18 mcg inhaled daily", "albuterol HFA two puffs q4h PRN", "prednisone {40|50} mg PO daily x5d"),
        ("duonebs q4h and steroid burst", "home O2 evaluation",
         "pulmonary rehab referral", "smoking cessation counseling"),
        ("CHF", "CAD", "CAP", "GERD"),
    ),
    Condition(
        "congestive heart failure", "CHF", (52, 92),
        ("orthopnea", "PND", "bilateral leg swelling", "weight gain of {4-14} lbs", "dyspnea on exertion"),
        ("JVD to {8-14} cm", "bibasilar crackles", "{2|3}+ pitting edema to the knees", "S3 gallop"),
        ("BNP {420-2900} pg/mL", "TTE with LVEF {20-40}%", "CXR with cephalization"),
        ("furosemide {20|40|80} mg PO BID", "metoprolol succinate {25|50|100} mg PO daily",
         "sacubitril-valsartan 24/26 mg BID"),
        ("diurese with IV lasix, strict I/Os and daily weights", "fluid restriction to 1.5 L", "repeat TTE"),
        ("AF", "CAD", "CKD", "COPD"),
    ),
    Condition(
        "coronary artery disease", "CAD", (46, 88),
        ("exertional chest pressure", "left arm radiation", "diaphoresis with exertion", "jaw discomfort"),
        ("RRR without murmur", "no JVD", "chest wall nontender"),
        ("troponin {0.01-0.09} ng/mL x{2|3}", "LDL {88-168} mg/dL",
         "stress MIBI with {inferior|lateral|anterior} ischemia"),
        ("aspirin 81 mg PO daily", "atorvastatin {40|80} mg PO qHS", "nitroglycerin 0.4 mg SL PRN"),
        ("cardiology consult for LHC", "maximize statin and beta blocker", "trend troponins overnight"),
        ("HTN", "T2DM", "CHF"),
    ),
    Condition(
        "hypothyroidism", "hypothyroid", (28, 82),
        ("cold intolerance", "fatigue", "constipation", "dry skin", "unintentional weight gain"),
        ("delayed relaxation of DTRs", "nonpitting edema", "thyroid without nodules"),
        ("TSH {6.8-42.0} uIU/mL", "free T4 {0.3-0.8} ng/dL", "TPO antibodies positive"),
        ("levothyroxine {25|50|75|88|112} mcg PO qAM",),
        ("adjust levothyroxine and recheck TSH in six weeks", "take levothyroxine apart from calcium"),
        ("MDD", "IDA", "HTN"),
    ),
    Condition(
        "major depressive disorder", "MDD", (19, 76),
        ("anhedonia", "early morning awakening", "low mood", "poor concentration", "decreased appetite"),
        ("flat affect", "psychomotor slowing", "denies SI/HI", "linear thought process"),
        ("PHQ-9 score {11-24}", "TSH wnl", "UDS negative"),
        ("sertraline {50|100|150} mg PO daily", "bupropion XL {150|300} mg PO qAM", "trazodone {50|100} mg PO qHS PRN"),
        ("increase sertraline, repeat PHQ-9 in four weeks", "CBT referral", "safety plan reviewed"),
        ("GAD", "OSA", "migraine", "hypothyroid"),
    ),
    Condition(
        "atrial fibrillation", "AF", (55, 92),
        ("palpitations", "irregular heartbeat", "presyncope", "exercise intolerance"),
        ("irregularly irregular rhythm", "HR {104-148}", "no pericardial rub"),
        ("EKG with AF and RVR", "CHA2DS2-VASc {2-6}", "INR {1.2-3.4}"),
        ("apixaban {2.5|5} mg PO BID", "diltiazem CD {120|180|240} mg PO daily", "warfarin {2.5|5} mg PO qPM"),
        ("rate control with diltiazem drip", "TEE and DCCV if RVR persists", "continue anticoagulation indefinitely"),
        ("CHF", "HTN", "CVA"),
    ),
    Condition(
        "osteoarthritis of the knee", "knee OA", (50, 88),
        ("medial knee pain", "morning stiffness under thirty minutes", "difficulty with stairs", "knee giving way"),
        ("crepitus with ROM", "medial joint line tenderness", "trace effusion", "varus alignment"),
        ("XR knee with medial joint space narrowing", "KL grade {2|3|4} changes"),
        ("acetaminophen {650|1000} mg PO TID PRN", "diclofenac 1% gel QID", "meloxicam {7.5|15} mg PO daily"),
        ("intraarticular triamcinolone injection", "PT for quad strengthening", "ortho referral for TKA"),
        ("HTN", "gout", "GERD"),
    ),
    Condition(
        "chronic kidney disease", "CKD", (50, 90),
        ("pruritus", "fatigue", "decreased urine output", "metallic taste", "ankle swelling"),
        ("AV fistula with thrill", "asterixis absent", "{1|2}+ pitting edema"),
        ("Cr {1.9-4.8} mg/dL", "eGFR {12-44}", "K {4.8-6.1} mEq/L", "Hgb {8.4-10.8} g/dL"),
        ("sevelamer {800|1600} mg PO TID with meals", "sodium bicarbonate 650 mg PO BID",
         "calcitriol 0.25 mcg PO daily"),
        ("avoid NSAIDs and renally dose meds", "nephrology f/u for access planning", "kayexalate and repeat K"),
        ("HTN", "T2DM", "gout", "CHF"),
    ),
    Condition(
        "moderate persistent asthma", "asthma", (18, 60),
        ("nocturnal wheezing", "chest tightness with cold air", "dry cough", "rescue inhaler use daily"),
        ("scattered wheezes", "speaking full sentences", "nasal turbinates boggy"),
        ("peak flow {180-340} L/min", "eosinophils {4-11}%", "spirometry with reversibility"),
        ("fluticasone-salmeterol {250/50|500/50} one puff BID", "montelukast 10 mg PO qHS",
         "albuterol HFA two puffs q4h PRN"),
        ("step up ICS/LABA", "asthma action plan reviewed", "prednisone burst x5d"),
        ("GERD", "GAD", "migraine"),
    ),
    Condition(
        "generalized anxiety disorder", "GAD", (18, 70),
        ("excessive worry", "muscle tension", "restlessness", "palpitations", "initial insomnia"),
        ("mildly anxious affect", "fine tremor", "denies SI/HI"),
        ("GAD-7 score {9-20}", "TSH wnl"),
        ("escitalopram {5|10|20} mg PO daily", "hydroxyzine {25|50} mg PO q6h PRN", "buspirone {10|15} mg PO BID"),
        ("titrate escitalopram", "CBT referral", "avoid benzodiazepines"),
        ("MDD", "migraine", "GERD"),
    ),
    Condition(
        "migraine without aura", "migraine", (18, 58),
        ("unilateral throbbing headache", "photophobia", "phonophobia", "nausea with emesis"),
        ("CN II-XII intact", "no papilledema", "neck supple"),
        ("CT head without acute process", "ESR {6-18}"),
        ("sumatriptan {50|100} mg PO PRN", "topiramate {25|50|100} mg PO BID", "propranolol LA {60|80} mg PO daily"),
        ("headache diary", "migraine cocktail with ketorolac and metoclopramide",
         "limit triptans to nine days a month"),
        ("MDD", "GAD", "asthma"),
    ),
    Condition(
        "community acquired pneumonia", "CAP", (22, 90),
        ("fever to {38.4-39.9} C", "rigors", "pleuritic chest pain", "rust colored sputum", "malaise"),
        ("RLL rales with egophony", "dullness to percussion", "RR {22-32}", "SpO2 {87-93}% on RA"),
        ("WBC {12.4-21.8}", "CXR with {RLL|LLL|RML} consolidation",
         "procalcitonin {0.4-3.8} ng/mL", "lactate {1.2-3.1}"),
        ("ceftriaxone {1|2} g IV q24h", "azithromycin {250|500} mg PO daily", "doxycycline 100 mg PO BID"),
        ("follow blood cultures x2", "narrow abx to PO and complete seven days", "repeat CXR in six weeks"),
        ("COPD", "CHF", "T2DM"),
    ),
    Condition(
        "iron deficiency anemia", "IDA", (19, 78),
        ("fatigue", "pica for ice", "exertional dyspnea", "hair thinning", "melena"),
        ("conjunctival pallor", "koilonychia", "guaiac {positive|negative} stool"),
        ("Hgb {7.1-10.4} g/dL", "MCV {64-78} fL", "ferritin {3-14} ng/mL"),
        ("ferrous sulfate 325 mg PO every other day", "iron sucrose {200|300} mg IV weekly"),
        ("colonoscopy to evaluate for occult GI bleed", "transfuse one unit PRBC if Hgb under seven", "repeat CBC"),
        ("hypothyroid", "CKD", "GERD"),
    ),
    Condition(
        "urinary tract infection", "UTI", (19, 88),
        ("dysuria", "urinary frequency", "suprapubic pressure", "flank pain", "hematuria"),
        ("{right|left} CVA tenderness", "suprapubic tenderness", "Tmax {38.1-39.4} C"),
        ("UA with LE, nitrites and {20-90} WBC/hpf", "urine culture growing {E. coli|Klebsiella|Proteus}"),
        ("nitrofurantoin 100 mg PO BID x5d", "ciprofloxacin {250|500} mg PO BID", "TMP-SMX DS one tab PO BID"),
        ("tailor abx to urine culture sensitivities", "push PO fluids", "renal US if febrile at 72 hours"),
        ("T2DM", "BPH", "CKD"),
    ),
    Condition(
        "benign prostatic hyperplasia", "BPH", (52, 88),
        ("urinary hesitancy", "weak stream", "nocturia x{2|3|4}", "incomplete emptying"),
        ("smooth enlarged prostate on DRE", "bladder not palpable"),
        ("PSA {1.8-6.4} ng/mL", "PVR {90-320} mL", "AUA symptom score {12-28}"),
        ("tamsulosin 0.4 mg PO qHS", "finasteride 5 mg PO daily"),
        ("continue alpha blocker", "urology referral for TURP", "recheck PSA in one year"),
        ("HTN", "UTI", "CKD"),
        "m",
    ),
    Condition(
        "cerebrovascular accident", "CVA", (50, 90),
        ("right sided weakness", "slurred speech", "facial droop", "word finding difficulty", "gait imbalance"),
        ("RUE strength {2|3|4}/5", "expressive aphasia", "pronator drift", "NIHSS {3-14}"),
        ("MRI with acute {left|right} MCA infarct", "CTA neck with {50-80}% ICA stenosis", "LDL {96-170} mg/dL"),
        ("clopidogrel 75 mg PO daily", "aspirin 81 mg PO daily", "atorvastatin 80 mg PO qHS"),
        ("DAPT for 21 days", "permissive HTN for 24 hours", "PT, OT and SLP evaluations", "loop recorder"),
        ("HTN", "AF", "T2DM"),
    ),
    Condition(
        "gouty arthropathy", "gout", (36, 86),
        ("acute great toe pain", "podagra", "inability to bear weight", "ankle pain overnight"),
        ("erythematous warm first MTP", "tophi at the olecranon", "exquisite tenderness"),
        ("uric acid {7.8-11.6} mg/dL", "synovial fluid with negatively birefringent crystals"),
        ("colchicine 0.6 mg PO BID", "allopurinol {100|200|300} mg PO daily", "indomethacin 50 mg PO TID"),
        ("start allopurinol after flare resolves", "goal uric acid under six", "avoid beer and organ meats"),
        ("CKD", "HTN", "knee OA"),
    ),
    Condition(
        "obstructive sleep apnea", "OSA", (32, 74),
        ("loud snoring", "witnessed apneas", "daytime somnolence", "morning headaches"),
        ("Mallampati class {3|4}", "neck circumference {42-50} cm", "BMI {33-46}"),
        ("PSG with AHI {18-64}", "Epworth score {11-21}"),
        ("CPAP at {8-14} cm H2O nightly", "modafinil {100|200} mg PO qAM"),
        ("CPAP mask refitting", "weight loss counseling", "download adherence data"),
        ("HTN", "T2DM", "AF"),
    ),
    Condition(
        "rheumatoid arthritis", "RA", (28, 76),
        ("symmetric hand pain", "morning stiffness over an hour", "swollen knuckles", "low grade fevers"),
        ("MCP synovitis bilaterally", "ulnar deviation", "rheumatoid nodules"),
        ("anti-CCP {60-280} units", "RF positive", "CRP {14-68} mg/L", "LFTs wnl"),
        ("methotrexate {10|15|20} mg PO weekly", "folic acid 1 mg PO daily", "adalimumab 40 mg SQ every two weeks"),
        ("escalate DMARD to adalimumab", "quantiferon before biologic", "monitor LFTs and CBC q8 weeks"),
        ("IDA", "MDD", "GERD"),
    ),
    Condition(
        "deep vein thrombosis", "DVT", (26, 84),
        ("unilateral calf swelling", "calf pain with walking", "recent long flight", "leg warmth"),
        ("{left|right} calf {3-6} cm larger", "Homans sign equivocal", "no phlegmasia"),
        ("D-dimer {1.2-8.6} mcg/mL", "duplex with occlusive {femoral|popliteal} thrombus"),
        ("rivaroxaban {15|20} mg PO daily", "enoxaparin {60|80|100} mg SQ q12h"),
        ("anticoagulate for three months", "hypercoagulable workup", "compression stockings"),
        ("CVA", "AF", "RA"),
    ),
    Condition(
        "end stage liver disease", "ESLD", (38, 76),
        ("increasing abdominal girth", "easy bruising", "confusion per family", "dark urine"),
        ("shifting dullness", "spider angiomata", "scleral icterus", "asterixis"),
        ("MELD {14-31}", "total bilirubin {2.4-9.8} mg/dL", "INR {1.5-2.4}", "albumin {1.9-2.9} g/dL"),
        ("lactulose {20|30} g PO TID", "spironolactone {50|100} mg PO daily", "rifaximin 550 mg PO BID"),
        ("diagnostic paracentesis to rule out SBP", "titrate lactulose to three BMs daily", "hepatology f/u"),
        ("T2DM", "IDA", "MDD"),
    ),
)  # fmt: skip

# What is not a key here comes from the note itself: name, mrn, dob, phone, address, clinician, date, age, sex, she,
# She, dx, dx_short, pmh, denied, meds, first_drug, canary, and symptom, finding, lab and plan, each with _a and _b.
NOTE_GRAMMAR: dict[str, tuple[str, ...]] = {
    "note": (
        "{clinic_header} {cc} {hpi} {exam} {labs} {medications} {plan} {canary}",
        "{clinic_header} {cc} {hpi} {medications} {exam} {plan} {canary}",
        "{ward_header} {course} {exam} {labs} {discharge_medications} {discharge_plan} {canary}",
        "{ed_header} {cc} {hpi} {exam} {labs} {medications} {ed_plan} {canary}",
        "{phone_header} {call} {medications} {plan} {canary}",
    ),
    "identity": (
        "Patient: {name}. MRN: {mrn}. DOB: {dob}. Phone: {phone}. Address: {address}.",
        "{name}, MRN {mrn}, DOB {dob}, tel {phone}, residing at {address}.",
        "Name: {name}. Record number: {mrn}. Born {dob}. Address: {address}. Contact: {phone}.",
    ),
    "clinic_header": ("{identity} Clinic visit {date} with Dr. {clinician}.", "{identity} Seen in clinic {date}."),
    "ward_header": ("{identity} Discharge summary {date}, attending Dr. {clinician}.",),
    "ed_header": ("{identity} ED note {date}.", "{identity} Emergency department, {date}, Dr. {clinician}."),
    "phone_header": ("{identity} Telephone encounter {date}, RN triage for Dr. {clinician}.",),
    "cc": (
        "Chief complaint: {symptom_a}.",
        "Chief complaint: {symptom_a} and {symptom_b}.",
        "Chief complaint: {dx_short} follow up.",
    ),
    "hpi": (
        "History: {age} yo {sex} with PMH of {pmh} presents with {symptom_a} x{duration}, also c/o "
        "{symptom_b}. {negatives}",
        "History: {age} yo {sex} w/ h/o {pmh} c/o {duration} of {symptom_a} and {symptom_b}. {negatives}",
        "History: {she} is a {age} yo {sex}, PMH significant for {pmh}. {She} reports {symptom_a}, {course_word}. "
        "{negatives}",
        "History: {sex} aged {age}, known {dx_short}, here for {symptom_a}. {She} endorses {symptom_b} for {duration}. "
        "{negatives}",
    ),
    "negatives": (
        "Denies {denied}.",
        "{She} denies {denied}, f/c, n/v.",
        "ROS otherwise negative.",
        "Pertinent negatives: {denied}.",
    ),
    "duration": ("{2-9} days", "{2-6} weeks", "{12-72} hours", "{2-8} months"),
    "course_word": ("worse over {duration}", "unchanged for {duration}", "waxing and waning x{duration}"),
    "exam": (
        "Exam: {finding_a}; {finding_b}.",
        "PE: NAD, A&Ox3. {finding_a}, {finding_b}.",
        "Exam notable for {finding_a}. VSS, afebrile.",
    ),
    "labs": ("Labs: {lab_a}; {lab_b}.", "Data: {lab_a}.", "Workup: {lab_a}, {lab_b}."),
    "medications": ("Medications: {meds}.", "Current medications: {meds}.", "Medications: {meds}. {allergies}"),
    "discharge_medications": ("Discharge medications: {meds}.", "Medications on discharge: {meds}. {allergies}"),
    "allergies": ("NKDA.", "Allergies: {penicillin|sulfa|latex|codeine} ({rash|hives|anaphylaxis}).", "NKDA."),
    "plan": (
        "Assessment and plan: {dx} ({dx_short}), {trend}. {plan_a}. {plan_b}. {return_visit}",
        "Assessment and plan: {dx_short} {trend}: {plan_a}; {plan_b}. {return_visit}",
        "Assessment and plan: 1. {dx}, {trend}. 2. {plan_a}. 3. {plan_b}. {return_visit}",
    ),
    "ed_plan": (
        "Assessment and plan: acute on chronic {dx_short}. {plan_a}; {plan_b}. {dispo}",
        "Assessment and plan: likely {dx} exacerbation. {plan_a}. {dispo}",
    ),
    "dispo": (
        "Admit to medicine.",
        "D/c home with PCP f/u.",
        "Obs overnight on telemetry.",
        "Dispo: home, strict return precautions given.",
    ),
    "course": (
        "Hospital course: {age} yo {sex} w/ {pmh} admitted with {symptom_a} and {symptom_b}, found to have {lab_a}. "
        "{Treated}, LOS {2-9} days.",
        "Hospital course: admitted via ED for {dx_short}, presenting with {symptom_a} x{duration}. {Treated}.",
    ),
    "Treated": (
        "Managed per protocol with good response",
        "Improved on {first_drug}",
        "Started on {first_drug}, tolerated well",
    ),
    "discharge_plan": (
        "Assessment and plan: {dx} ({dx_short}), {trend}. {plan_a}. {return_visit}",
        "Assessment and plan: {dx_short} stable for d/c. {plan_a}; {plan_b}. {return_visit}",
    ),
    "call": (
        "History: {age} yo {sex} with {pmh} calls reporting {symptom_a} x{duration}. {negatives} Last {lab_a}.",
        "History: {sex} with {dx_short}, {age} yo, calling re: {symptom_a}; {symptom_b} {course_word}. {negatives} "
        "Results reviewed: {lab_a}.",
    ),
    "trend": ("not at goal", "stable", "improving", "worsening", "uncontrolled"),
    "return_visit": ("RTC in {2-12} weeks.", "F/u {2-12} weeks.", "RTC PRN.", "Call back if febrile."),
}

CANARY_SENTENCES = (
    "Portal password is {canary_word}.",
    "Patient portal password {canary_word}.",
    "Verbal password for phone results: {canary_word}.",
    "Emergency contact code word is {canary_word}.",
)
