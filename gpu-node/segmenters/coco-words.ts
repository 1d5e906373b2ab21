// COCO's 80 classes in the detector's order, what else people call them, and groups of them.

import { wordsOf } from "../../shared/vocabulary.ts";

export const COCO_NAMES: readonly string[] = [
  ..."person,bicycle,car,motorcycle,airplane,bus,train,truck,boat,traffic light".split(","),
  ..."fire hydrant,stop sign,parking meter,bench,bird,cat,dog,horse,sheep,cow".split(","),
  ..."elephant,bear,zebra,giraffe,backpack,umbrella,handbag,tie,suitcase,frisbee".split(","),
  ..."skis,snowboard,sports ball,kite,baseball bat,baseball glove,skateboard".split(","),
  ..."surfboard,tennis racket,bottle,wine glass,cup,fork,knife,spoon,bowl,banana".split(","),
  ..."apple,sandwich,orange,broccoli,carrot,hot dog,pizza,donut,cake,chair,couch".split(","),
  ..."potted plant,bed,dining table,toilet,tv,laptop,mouse,remote,keyboard".split(","),
  ..."cell phone,microwave,oven,toaster,sink,refrigerator,book,clock,vase".split(","),
  ..."scissors,teddy bear,hair drier,toothbrush".split(","),
];

const SYNONYMS: Readonly<Record<string, string>> = {
  person:
    "people,human,human being,man,woman,boy,girl,child,children,kid,baby,adult,pedestrian," +
    "passerby,worker,player,rider,driver,customer,shopper,cyclist,athlete,guy,lady",
  bicycle: "bike,cycle,pushbike",
  car: "automobile,sedan,taxi,cab,suv,hatchback,passenger car",
  motorcycle: "motorbike,scooter,moped",
  airplane: "aeroplane,plane,aircraft,jet,airliner",
  bus: "coach,minibus",
  train: "tram,locomotive,railcar",
  truck: "lorry,pickup,pickup truck,van,semi trailer",
  boat: "ship,vessel,sailboat,canoe,kayak,ferry,yacht",
  "traffic light": "traffic signal,stoplight",
  "fire hydrant": "hydrant",
  bird: "pigeon,seagull,gull,duck,goose,geese,chicken",
  cat: "kitten,kitty",
  dog: "puppy,hound",
  horse: "pony,foal",
  sheep: "lamb,ewe",
  cow: "cattle,bull,ox,oxen,calf",
  bear: "brown bear,polar bear,grizzly",
  backpack: "rucksack,knapsack",
  umbrella: "parasol",
  handbag: "purse,tote bag",
  tie: "necktie",
  suitcase: "luggage",
  frisbee: "flying disc",
  skis: "ski",
  "sports ball": "ball,football,soccer ball,basketball,tennis ball,volleyball",
  "baseball bat": "bat",
  "baseball glove": "baseball mitt",
  "tennis racket": "racket,racquet",
  bottle: "flask",
  "wine glass": "wineglass,goblet",
  cup: "mug,teacup,drinking glass",
  sandwich: "burger,hamburger",
  "hot dog": "hotdog",
  donut: "doughnut",
  chair: "armchair,stool,seat",
  couch: "sofa,settee",
  "potted plant": "plant,houseplant",
  "dining table": "table,desk",
  tv: "television,monitor,screen,display",
  laptop: "notebook computer",
  mouse: "computer mouse",
  remote: "remote control",
  "cell phone": "phone,telephone,smartphone,cellphone",
  oven: "stove",
  sink: "basin,washbasin",
  refrigerator: "fridge,freezer",
  clock: "watch",
  "teddy bear": "teddy,stuffed toy,plush toy",
  "hair drier": "hair dryer,hairdryer",
};

const GROUPS: Readonly<Record<string, string>> = {
  vehicle: "car,bus,truck,motorcycle,bicycle,train,boat,airplane",
  "motor vehicle": "car,bus,truck,motorcycle",
  animal: "bird,cat,dog,horse,sheep,cow,elephant,bear,zebra,giraffe",
  livestock: "horse,sheep,cow",
  pet: "cat,dog",
  fruit: "banana,apple,orange",
  vegetable: "broccoli,carrot",
  food: "sandwich,pizza,donut,cake,hot dog,banana,apple,orange,broccoli,carrot",
  bag: "backpack,handbag,suitcase",
  furniture: "chair,couch,bed,dining table,bench",
  cutlery: "fork,knife,spoon",
  tableware: "bottle,wine glass,cup,fork,knife,spoon,bowl",
  electronics: "tv,laptop,cell phone,keyboard,mouse,remote",
};

const lists = (texts: Readonly<Record<string, string>>) =>
  Object.fromEntries(Object.entries(texts).map(([key, text]) => [key, text.split(",")]));

/** Every word that answers to classes of COCO. */
export const COCO_WORDS = wordsOf({
  names: COCO_NAMES,
  synonyms: lists(SYNONYMS),
  groups: lists(GROUPS),
});
